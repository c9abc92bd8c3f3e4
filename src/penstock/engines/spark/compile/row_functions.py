"""Row functions: a Python function of one row, applied to Arrow batches and timed.

Each batch is timed as a whole, which gives the cost of a row at the price of two clock readings per batch. One row in N
is timed by itself, which gives the variance of the service time. DRS times each N-th row (Fu et al. 2017, section IV).
Here each row is drawn with probability 1/N. A periodic pattern in the rows therefore cannot bias the sample, and the
rows of small batches have the same chance.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame

from penstock.dataflow import DataflowError
from penstock.dataflow.code_location import written_at
from penstock.dataflow.function_errors import user_function_error
from penstock.dataflow.operators import RowFunction
from penstock.engines.spark.calls.row_calls import over_concurrent_rows
from penstock.engines.spark.compile.clocks import Timing, rows_until_drawn
from penstock.engines.spark.storage.column_names import ArrowFunction, map_in_arrow, repeated_name
from penstock.engines.spark.storage.row_conversion import batch_from_dicts, several_rows
from penstock.engines.spark.storage.row_files import arrow_schema
from penstock.engines.spark.storage.schemas import parse_schema, refuse_intervals_of_months
from penstock.engines.spark.storage.serialisation import check_serialisable

Function = Callable[[dict[str, Any]], Any]  # returns a row, several rows, or None


def apply_rows(
    df: DataFrame,
    name: str,
    function: Function,
    schema: str,
    timing: Timing | None,
    profile: ResourceProfile | None = None,
) -> DataFrame:
    """Apply a row function to a DataFrame. `schema` is that of the rows that the function returns.

    profile: the resource profile with which the stage of the function runs; None: the default one.

    Raises DataflowError if two columns of the DataFrame have the same name, because a row is a dict.
    """
    repeated = repeated_name(df.columns)
    if repeated is not None:
        raise DataflowError(
            f"operator '{name}' receives two columns named '{repeated}', and a row is a dict; rename one of them "
            "before it"
        )
    check_serialisable(f"operator '{name}'", function)
    refuse_intervals_of_months(f"operator '{name}'", df.schema)
    arrow = arrow_schema(parse_schema(f"operator '{name}'", schema))
    return map_in_arrow(df, over_rows(name, function, arrow, timing), schema, profile)


def apply_row_function(
    df: DataFrame,
    name: str,
    function: RowFunction,
    timing: Timing | None = None,
    run: Path | None = None,
    profile: ResourceProfile | None = None,
) -> DataFrame:
    """Apply a declared row function to a DataFrame, with concurrent calls if it has threads.

    run: the run directory, whose plan determines the number of threads; None: the declared number.
    profile: the resource profile with which the stage of the function runs; None: the default one.
    """
    if function.calls is None:
        return apply_rows(df, name, function.fn, function.schema, timing, profile)
    check_serialisable(f"operator '{name}'", (function.fn, function.calls.client))
    schema = function.output_schema(name)
    over = over_concurrent_rows(
        name,
        function,
        arrow_schema(parse_schema(f"operator '{name}'", function.schema)),
        arrow_schema(parse_schema(f"operator '{name}'", schema)),
        client_key=uuid.uuid4().hex,
        run=run,
        record=None if timing is None else timing.add_calls,
    )
    return map_in_arrow(df, over, schema, profile)


def over_rows(name: str, function: Function, schema: pa.Schema, timing: Timing | None) -> ArrowFunction:
    """Return a function of Arrow batches that calls a row function for each row."""

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = time.perf_counter
        producer = f"the function of '{name}'{written_at(function)}"
        until_next = -1 if timing is None else rows_until_drawn(timing.every)
        for batch in batches:
            # Only for maps, because this option makes the conversion to rows several times slower.
            options = {"maps_as_pydicts": "strict"} if "map<" in str(batch.schema.types) else {}
            began = clock()
            made: list[dict[str, Any]] = []
            sampled, sampled_s, sampled_s2 = 0, 0.0, 0.0
            row: dict[str, Any] | None = None
            try:
                for row in batch.to_pylist(**options):
                    if until_next == 0 and timing is not None:
                        row_began = clock()
                        result = function(row)
                        if result is not None and not isinstance(result, dict):
                            result = list(several_rows(result, producer))  # a generator does its work here
                        row_s = clock() - row_began
                        sampled, sampled_s, sampled_s2 = sampled + 1, sampled_s + row_s, sampled_s2 + row_s * row_s
                        until_next = rows_until_drawn(timing.every)
                    else:
                        result = function(row)
                        until_next -= 1
                    if isinstance(result, dict):
                        made.append(result)
                    elif result is not None:
                        made.extend(several_rows(result, producer))
            except DataflowError:
                raise
            except Exception as error:
                raise user_function_error(f"operator '{name}'", function, error, row=row) from error
            output = batch_from_dicts(made, schema, producer)
            if timing is not None:
                timing.seconds.add(clock() - began)
                timing.sampled.add(sampled)
                timing.sampled_s.add(sampled_s)
                timing.sampled_s2.add(sampled_s2)
            yield output

    return over
