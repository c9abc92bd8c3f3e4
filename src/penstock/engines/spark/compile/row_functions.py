"""Row functions: a plain Python function of one row run over Arrow batches, timed while it works.

The whole of each batch is timed, which costs two looks at the clock for thousands of rows and gives the cost of a row;
one row in N is timed by itself, which gives the spread of the service time. DRS times each N-th row (Fu et al. 2017,
section IV); here each row is drawn with probability 1/N, so that a period in the rows cannot hide from the sample and
small batches are neither left out nor always judged by their first row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engines.spark.compile.clocks import Timing, rows_until_drawn
from penstock.engines.spark.storage.column_names import ArrowFunction, map_in_arrow
from penstock.engines.spark.storage.row_conversion import batch_from_dicts
from penstock.engines.spark.storage.row_files import arrow_schema
from penstock.engines.spark.storage.schemas import parse_schema


def apply_rows(
    df: DataFrame, name: str, fn: Callable[[dict[str, Any]], Any], schema: str, timing: Timing | None
) -> DataFrame:
    arrow = arrow_schema(parse_schema(f"operator '{name}'", schema))
    return map_in_arrow(df, over_rows(name, fn, arrow, timing), schema)


def over_rows(
    name: str, fn: Callable[[dict[str, Any]], Any], schema: pa.Schema, timing: Timing | None
) -> ArrowFunction:

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = time.perf_counter
        until_next = -1 if timing is None else rows_until_drawn(timing.every)
        for batch in batches:
            # Only where there are maps: Arrow takes several times as long to make rows so.
            maps = {"maps_as_pydicts": "strict"} if "map<" in str(batch.schema.types) else {}
            began = clock()
            made: list[dict[str, Any]] = []
            sampled, sampled_s, sampled_s2 = 0, 0.0, 0.0
            for row in batch.to_pylist(**maps):
                if until_next == 0 and timing is not None:
                    row_began = clock()
                    result = fn(row)
                    if result is not None and not isinstance(result, dict):
                        result = list(result)  # a generator does its work only now
                    took = clock() - row_began
                    sampled, sampled_s, sampled_s2 = sampled + 1, sampled_s + took, sampled_s2 + took * took
                    until_next = rows_until_drawn(timing.every)
                else:
                    result = fn(row)
                    until_next -= 1
                if isinstance(result, dict):
                    made.append(result)
                elif result is not None:
                    made.extend(result)
            out = batch_from_dicts(made, schema, f"the function of '{name}'")
            if timing is not None:
                timing.seconds.add(clock() - began)
                timing.sampled.add(sampled)
                timing.sampled_s.add(sampled_s)
                timing.sampled_s2.add(sampled_s2)
            yield out

    return over
