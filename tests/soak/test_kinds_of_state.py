"""The other kinds of Spark state under changes of replicas: 2 -> 3 -> 1 -> 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.dataflow import Dataflow
from tests.support.spark_runs import engine_for, play

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROWS, KEYS, BEGAN = 2_000, 37, 1_700_000_000
DELAY_S, GAP_S = 10, 60


def events(flow: Dataflow, key: str) -> penstock.Stream:
    """Return events at intervals of two seconds; `key` is an expression of the number n."""
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=ROWS, rows_per_s=800))
    rows = numbers.stateless(
        "rows", lambda df: df.selectExpr("n", f"{key} as k", f"timestamp_seconds({BEGAN} + 2 * n) as ts")
    )
    return rows.watermark("ts", f"{DELAY_S} seconds")


def closed(last_s: int) -> bool:
    """Return whether the last watermark has passed the end of a session, GAP_S after this second."""
    return last_s + GAP_S <= 2 * (ROWS - 1) - DELAY_S


def output(flow: Dataflow, spark: SparkSession, at: Path) -> list[dict[str, Any]]:
    engine = engine_for(flow, spark, at, max_batch_rows=150)
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"state": replicas}) for replicas in (3, 1, 4)])
        return engine.rows("out")
    finally:
        engine.stop()


def test_session_windows(spark: SparkSession, tmp_path: Path) -> None:
    def sessions(df: DataFrame) -> DataFrame:
        grouped = df.groupBy(F.session_window("ts", f"{GAP_S} seconds"), "k").count()
        return grouped.selectExpr("k", f"unix_seconds(session_window.start) - {BEGAN} as s", "count")

    flow = penstock.Dataflow("sessions")  # four events of a key in a row, then a pause
    events(flow, f"n div 4 % {KEYS}").keyed("state", sessions, keys=["k"], output_mode="append").sink(
        "out", penstock.memory()
    )
    counts = Counter((row["k"], row["s"], row["count"]) for row in output(flow, spark, tmp_path))
    assert counts == Counter((n // 4 % KEYS, 2 * n, 4) for n in range(0, ROWS, 4) if closed(2 * n + 6))


def test_duplicates_of_all_time(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("once")
    rows = flow.source("rows", penstock.generate(lambda n: n % 500, schema="k bigint", rows=ROWS, rows_per_s=800))
    rows.keyed("state", lambda df: df.dropDuplicates(["k"]), keys=["k"], output_mode="append").sink(
        "out", penstock.memory()
    )
    assert sorted(row["k"] for row in output(flow, spark, tmp_path)) == list(range(500))


def test_duplicates_within_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("lately")
    lately = events(flow, "n div 2").keyed(
        "state", lambda df: df.dropDuplicatesWithinWatermark(["k"]), keys=["k"], output_mode="append"
    )
    lately.sink("out", penstock.memory())
    assert sorted(row["k"] for row in output(flow, spark, tmp_path)) == list(range(ROWS // 2))


class Collections(StatefulProcessor):
    """Keep every row in a list, in a map by remainder, and in a count."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.all = handle.getListState("all", "n bigint")
        self.by_rest = handle.getMapState("by_rest", "rest bigint", "c bigint")
        self.count = handle.getValueState("count", "c bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        count = self.count.get()[0] if self.count.exists() else 0
        for n in (int(n) for some in rows for n in some["n"]):
            rest, count = (n % 5,), count + 1
            self.all.appendValue((n,))
            so_far = self.by_rest.getValue(rest)[0] if self.by_rest.containsKey(rest) else 0
            self.by_rest.updateValue(rest, (so_far + 1,))
        self.count.update((count,))
        listed, mapped = sum(1 for _ in self.all.get()), sum(value[0] for value in self.by_rest.values())
        yield pd.DataFrame({"k": [key[0]], "c": [count], "listed": [listed], "mapped": [mapped]})

    def close(self) -> None:
        pass


def test_lists_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    schema = "k bigint, c bigint, listed bigint, mapped bigint"
    flow = penstock.Dataflow("collections")
    kept = events(flow, f"n % {KEYS}").keyed(
        "state",
        lambda df: df.groupBy("k").transformWithStateInPandas(Collections(), schema, "Update", "None"),
        keys=["k"],
    )
    kept.sink("out", penstock.memory())
    last: Counter[int] = Counter()
    for row in output(flow, spark, tmp_path):
        assert row["c"] == row["listed"] == row["mapped"]
        last[row["k"]] = max(last[row["k"]], row["c"])
    assert last == Counter(n % KEYS for n in range(ROWS))


class CountAfterSilence(StatefulProcessor):
    """Return the number of rows of a key after a time without rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "c bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        frames = list(rows)
        count = self.count.get()[0] if self.count.exists() else 0
        self.count.update((count + sum(len(some) for some in frames),))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        latest = max(some["ts"].max() for some in frames)
        self.handle.registerTimer(int(latest.timestamp() * 1000) + GAP_S * 1000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield pd.DataFrame({"k": [key[0]], "c": [self.count.get()[0]]})
        self.count.clear()

    def close(self) -> None:
        pass


def test_timers(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("silence")
    counts_by_key = events(flow, "n div 100").keyed(
        "state",
        lambda df: df.groupBy("k").transformWithStateInPandas(
            CountAfterSilence(), "k bigint, c bigint", "Append", "EventTime"
        ),
        keys=["k"],
        output_mode="append",
    )
    counts_by_key.sink("out", penstock.memory())
    counts = Counter((row["k"], row["c"]) for row in output(flow, spark, tmp_path))
    assert counts == Counter((k, 100) for k in range(ROWS // 100) if closed(2 * (100 * k + 99)))
