"""Rolling count: count each word in the last three minutes, once per minute.

A stateless split and a count keyed by word in sliding windows of event time. Each count is emitted once, when the
watermark has passed its window, so it does not depend on the boundaries of batches.
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
from penstock.apps import wordcount
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink, generated
from penstock.apps.mst.event_time import DELAY_S, event_time, is_closed
from penstock.dataflow.sinks import Sink

WINDOW_S = 180
SLIDE_S = 60
SCHEMA = "ts timestamp, value string"


def generator(n: int, rows: int | None = None) -> tuple[datetime, str]:
    """Return line n with its event time. The last of `rows` lines flushes the windows."""
    return event_time(n, rows), wordcount.generator(n)


def split(lines: DataFrame) -> DataFrame:
    return lines.select("ts", F.explode(F.split("value", r"\s+")).alias("word")).where("word != ''")


def count(words: DataFrame) -> DataFrame:
    windows = F.window("ts", f"{WINDOW_S} seconds", f"{SLIDE_S} seconds")
    return words.groupBy(windows, "word").count().select("word", F.col("window.end").alias("window_end"), "count")


def flow(output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None) -> penstock.Dataflow:
    flow = penstock.Dataflow("rolling_count")
    lines = flow.source("lines", generated(functools.partial(generator, rows=rows), SCHEMA, rows, rows_per_s))
    (
        lines.stateless("split", split, columns=["ts", "word"])
        .watermark("ts", f"{DELAY_S} seconds")
        .keyed("count", count, keys=["word"], columns=["word", "window_end", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


WordCount = tuple[str, int, int]  # word, end of the window in ms, count


def oracle(rows: int) -> Counter[WordCount]:
    return window_counts(generator(n, rows) for n in range(rows))


def window_counts(lines: Iterable[tuple[datetime, str]]) -> Counter[WordCount]:
    """Return the expected output of these lines: the counts of all windows that the watermark has passed.

    >>> at = [datetime.fromisoformat(f"1970-01-01T00:0{time}Z") for time in ("3:00", "5:10")]
    >>> window_counts([(at[0], "a a"), (at[1], "b")])
    Counter({('a', 240000, 2): 1, ('a', 300000, 2): 1})
    """
    counts: Counter[tuple[str, int]] = Counter()
    latest_ms = 0
    for at, line in lines:
        at_ms = epoch_ms(at)
        latest_ms = max(latest_ms, at_ms)
        first_end_ms = (at_ms // (SLIDE_S * 1000) + 1) * SLIDE_S * 1000
        for end_ms in range(first_end_ms, first_end_ms + WINDOW_S * 1000, SLIDE_S * 1000):
            counts.update((word, end_ms) for word in line.split())
    return Counter({(word, end_ms, n): 1 for (word, end_ms), n in counts.items() if is_closed(end_ms, latest_ms)})


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[WordCount]:
    return Counter((row["word"], epoch_ms(row["window_end"]), row["count"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
