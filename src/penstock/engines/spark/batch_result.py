"""The result of a dataflow on a sample of its input, computed as one batch without streaming queries.

One batch has all rows, so each result is final: there are no intermediate updates, and all windows are complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.dataflow import Dataflow, Kind, Operator, RowFunction
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operator_class import PortOperator
from penstock.engines.spark.compile.ports import apply_ports
from penstock.engines.spark.compile.row_functions import apply_row_function
from penstock.engines.spark.error_text import root_cause
from penstock.engines.spark.sources.samples import first_rows


def input_samples(flow: Dataflow, rows: int) -> dict[str, pa.Table]:
    """Return the first rows of each source. Needs a running Spark session."""
    return {operator.name: first_rows(operator, rows) for operator in flow.operators if operator.kind is Kind.SOURCE}


def operator_input(
    flow: Dataflow, name: str, rows: int, spark: SparkSession
) -> tuple[StructType, list[dict[str, Any]]]:
    """Return the schema and the rows that reach an operator, for the first `rows` rows of each source.

    Several inputs of one function are a union here as in a run; the sample has as many rows of each of them.

    Raises:
        PenstockError: The function takes each input by itself, the dataflow has a loop, or a function fails on the
            sample.
    """
    operator = flow[name]
    if operator.takes_each_input:
        raise PenstockError(
            f"The function of '{name}' takes {len(operator.inputs)} inputs, one by one; only a function of one input "
            "or of a union can run alone."
        )
    before = flow.with_only_input_of(name)
    results = batch_frames(before, input_samples(before, rows), spark)
    first, *others = [results[source].limit(-(-rows // len(operator.inputs))) for source in operator.inputs]
    frame = first
    for other in others:
        frame = frame.unionByName(other)
    return frame.schema, [row.asDict(recursive=True) for row in frame.collect()]


def batch_results(
    flow: Dataflow, samples: Mapping[str, pa.Table], spark: SparkSession
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that reach each sink for these rows of each source.

    Raises:
        PenstockError: The dataflow has a loop or an operator that exists only in streams, or a function fails on the
            sample.
    """
    frames = batch_frames(flow, samples, spark)
    results = {}
    for operator in flow.operators:
        if operator.kind is Kind.SINK:
            with _explained(flow, operator):
                results[operator.name] = [row.asDict(recursive=True) for row in frames[operator.name].collect()]
    return results


def row_sizes(flow: Dataflow, samples: Mapping[str, pa.Table], spark: SparkSession) -> dict[str, float]:
    """Return the mean size of a row of each stream in Arrow's format, in bytes, for these rows of each source.

    Streams without rows are left out. The result is empty if an operator exists only in streams.
    """
    sizes: dict[str, float] = {}
    with contextlib.suppress(PenstockError, PySparkException):
        frames = batch_frames(flow, samples, spark)
        for operator in flow.operators:
            if operator.kind is not Kind.SINK:
                rows = frames[operator.name].toArrow()
                if rows.num_rows:
                    sizes[operator.name] = rows.nbytes / rows.num_rows
    return sizes


def batch_frames(flow: Dataflow, samples: Mapping[str, pa.Table], spark: SparkSession) -> dict[str, DataFrame]:
    """Return the DataFrame of each operator's output. For a sink, it is the input."""
    if any(operator.feedback for operator in flow.operators):
        raise PenstockError(f"Dataflow '{flow.name}' has a loop, so it has no result of one batch.")
    frames: dict[str, DataFrame] = {}
    for operator in flow.operators:
        with _explained(flow, operator):
            if operator.kind is Kind.SOURCE:
                frames[operator.name] = spark.createDataFrame(samples[operator.name])
            else:
                frames[operator.name] = _output(operator, [frames[name] for name in operator.inputs])
    return frames


@contextlib.contextmanager
def _explained(flow: Dataflow, operator: Operator) -> Iterator[None]:
    """Replace an error of Spark by one that names the operator."""
    try:
        yield
    except PySparkException as error:
        cause = root_cause(error)
        if "unsupported in batch" in cause:
            raise PenstockError(
                f"Dataflow '{flow.name}' has no result of one batch: {cause} Compare it without the check of the "
                "results (--no-check)."
            ) from error
        raise PenstockError(f"Operator '{operator.name}' of '{flow.name}' fails on the sample: {cause}") from error


def _output(operator: Operator, inputs: list[DataFrame]) -> DataFrame:
    function = operator.fn
    if not operator.takes_each_input:
        union = inputs[0]
        for other in inputs[1:]:
            union = union.unionByName(other)
        inputs = [union]
    if function is None:
        return inputs[0]
    if isinstance(function, RowFunction):
        return apply_row_function(inputs[0], operator.name, function)
    if isinstance(function, PortOperator):
        is_ordered = [True] * len(inputs)
        return apply_ports(inputs, operator.name, function, None, replicas=len(inputs), is_ordered=is_ordered)
    try:
        result: DataFrame = function(*inputs)
    except (PySparkException, PenstockError):  # their messages are sufficient
        raise
    except Exception as error:
        raise PenstockError(f"The function of '{operator.name}' fails: {type(error).__name__}: {error}") from error
    return result
