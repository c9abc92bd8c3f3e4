"""The result of a dataflow on a sample of its input, computed as one batch without streaming queries.

One batch has all rows, so each result is final: there are no intermediate updates, and all windows are complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow import Dataflow, Kind, Operator, RowFunction
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.compile.row_functions import apply_rows
from penstock.engines.spark.error_text import root_cause
from penstock.engines.spark.sources.samples import first_rows


def input_samples(flow: Dataflow, rows: int) -> dict[str, pa.Table]:
    """Return the first rows of each source. Needs a running Spark session."""
    return {operator.name: first_rows(operator, rows) for operator in flow.operators if operator.kind is Kind.SOURCE}


def batch_results(
    flow: Dataflow, samples: Mapping[str, pa.Table], spark: SparkSession
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that reach each sink for these rows of each source.

    Raises:
        PenstockError: The dataflow has a loop or an operator that exists only in streams, or a function fails on the
            sample.
    """
    if any(operator.feedback for operator in flow.operators):
        raise PenstockError(f"Dataflow '{flow.name}' has a loop, so it has no result of one batch.")
    frames: dict[str, DataFrame] = {}
    results = {}
    for operator in flow.operators:
        try:
            if operator.kind is Kind.SOURCE:
                frames[operator.name] = spark.createDataFrame(samples[operator.name])
                continue
            frame = _output(operator, [frames[name] for name in operator.inputs])
            if operator.kind is Kind.SINK:
                results[operator.name] = [row.asDict(recursive=True) for row in frame.collect()]
            else:
                frames[operator.name] = frame
        except PySparkException as error:
            cause = root_cause(error)
            if "unsupported in batch" in cause:
                raise PenstockError(
                    f"Dataflow '{flow.name}' has no result of one batch: {cause} Compare it without the check of the "
                    "results (--no-check)."
                ) from error
            raise PenstockError(f"Operator '{operator.name}' of '{flow.name}' fails on the sample: {cause}") from error
    return results


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
        return apply_rows(inputs[0], operator.name, function.fn, function.schema, None)
    try:
        result: DataFrame = function(*inputs)
    except (PySparkException, PenstockError):  # their messages are sufficient
        raise
    except Exception as error:
        raise PenstockError(f"The function of '{operator.name}' fails: {type(error).__name__}: {error}") from error
    return result
