"""Rolling sort: sort the records of each minute when the minute is over.

The app tests memory use. All records of a minute are in one window, so one replica holds them (global state). Windows
use event time, and equal values are ordered by row number, so the order is unique.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink, generated
from penstock.apps.mst import sol
from penstock.apps.mst.event_time import DELAY_S, event_time, is_closed
from penstock.dataflow.sinks import Sink

WINDOW_S = 60
SCHEMA = "ts timestamp, n bigint, value string"

Record = tuple[datetime, int, str]  # event time, row number, sort key


def generator(n: int, rows: int | None = None) -> Record:
    """Return message n of SOL with its event time. The last of `rows` messages flushes the windows."""
    return event_time(n, rows), *sol.generator(n)


def sort(records: DataFrame) -> DataFrame:
    """Return one row per record, with its rank within its window."""
    windows = records.groupBy(F.window("ts", f"{WINDOW_S} seconds")).agg(
        F.sort_array(F.collect_list(F.struct("value", "n"))).alias("sorted")
    )
    ranked = windows.select(F.col("window.end").alias("window_end"), F.posexplode("sorted").alias("rank", "record"))
    return ranked.select("window_end", "rank", "record.n", "record.value")


def flow(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> penstock.Dataflow:
    flow = penstock.Dataflow("rolling_sort")
    records = flow.source("records", generated(functools.partial(generator, rows=rows), SCHEMA, rows, rows_per_s))
    (
        records.watermark("ts", f"{DELAY_S} seconds")
        .global_state("sort", sort, columns=["window_end", "rank", "n", "value"])
        .sink("out", default_sink(output, rows))
    )
    return flow


Ranked = tuple[int, int, int, str]  # end of the window in ms, rank from 0, row number, value


def oracle(rows: int) -> Counter[Ranked]:
    return ranked(generator(n, rows) for n in range(rows))


def ranked(records: Iterable[Record]) -> Counter[Ranked]:
    """Return the expected output: the records of all windows that the watermark has passed, with their ranks.

    >>> at = [datetime.fromisoformat(f"1970-01-01T00:0{minute}:00Z") for minute in range(3)]
    >>> ranked([(at[0], 0, "b"), (at[0], 1, "a"), (at[1], 2, "c"), (at[2], 3, "d")])
    Counter({(60000, 0, 1, 'a'): 1, (60000, 1, 0, 'b'): 1})
    """
    by_end: dict[int, list[tuple[str, int]]] = {}
    latest_ms = 0
    for at, n, value in records:
        at_ms = epoch_ms(at)
        latest_ms = max(latest_ms, at_ms)
        by_end.setdefault((at_ms // (WINDOW_S * 1000) + 1) * WINDOW_S * 1000, []).append((value, n))
    return Counter(
        (end_ms, rank, n, value)
        for end_ms, held in by_end.items()
        if is_closed(end_ms, latest_ms)
        for rank, (value, n) in enumerate(sorted(held))
    )


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Ranked]:
    return Counter((epoch_ms(row["window_end"]), row["rank"], row["n"], row["value"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
