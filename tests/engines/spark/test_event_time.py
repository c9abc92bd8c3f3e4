"""Event time across cuts: no row on time is treated as late, and windows close as without the cut."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps import finance
from penstock.dataflow.edge import Edge
from penstock.engines.spark.channels.log import Log
from penstock.engines.spark.queries.watermarks import InputWatermarks
from tests.support.spark_runs import engine_for, plan_of, play, wait_until

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 600  # one row per second, and a last one that is far ahead


def moment(n: int) -> tuple[datetime, int]:
    ahead_s = 0 if n < ROWS - 1 else 10_000
    return START + timedelta(seconds=n + ahead_s), n % 3


def counted(by: str, window_s: int, add: str) -> Any:
    def fn(df: DataFrame) -> DataFrame:
        windows = df.groupBy(F.window(by, f"{window_s} seconds"), "k").agg(F.expr(f"sum({add})").alias("n"))
        return windows.select(F.window_time("window").alias("at"), "k", "n")

    return fn


def test_windows_of_windows_close_and_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Event time continues after the first window, and the filter hides the last rows from the second window.

    It also continues after a Python function, where Spark itself has no event-time column.
    """
    flow = penstock.Dataflow("twice")
    rows = flow.source("rows", penstock.generate(moment, schema="ts timestamp, k int", rows=ROWS, rows_per_s=150))
    rows.watermark("ts", "5 seconds")
    same = rows.rows("same", lambda row: row, schema="ts timestamp, k int")
    small = same.keyed("small", counted("ts", 10, "1"), keys=["k"], columns=["at", "k", "n"])
    kept = small.stateless("kept", lambda df: df.where("k < 2"), columns=["at", "k", "n"])
    kept.keyed("large", counted("at", 60, "n"), keys=["k"], columns=["at", "k", "n"]).sink("out", penstock.memory())
    truth = Counter((n // 60, n % 3) for n in range(ROWS - 1) if n % 3 < 2)
    engine = engine_for(flow, spark, tmp_path / "run", plan_of(flow, {"same": 1}, {"rows", "kept"}))
    try:
        engine.start()
        play(engine, [plan_of(flow, {"same": 2}, {"small"})])
        out = {(int((row["at"].replace(tzinfo=UTC) - START).total_seconds()) // 60, row["k"]): row["n"]
               for row in engine.rows("out")}  # fmt: skip
        assert out == truth
    finally:
        engine.stop()


def test_no_row_is_late_because_of_an_earlier_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """Windows that close at the same time pass the channel after the rows that closed them."""
    rows = 2_000
    flow = finance.flow(output=penstock.memory(), rows=rows, rows_per_s=100_000)
    engine = engine_for(flow, spark, tmp_path / "run", max_batch_rows=700)
    try:
        engine.start()
        wait_until(engine.idle, engine)  # there is no observation, so nothing is deleted
        folder = next(query.appends_to for query in engine.queries if query.pipeline == "vwap")
        log = Log(tmp_path / "run" / "channels" / folder)
        watermark_s, seen = float("-inf"), 0
        for entry in log.entries(0, log.end()):
            for file in entry.files:
                starts = pa.ipc.open_file(pa.memory_map(file.path)).read_all()["window_start"].to_pylist()
                assert all(start.timestamp() >= watermark_s for start in starts)
                seen += len(starts)
            if entry.watermark_ms is not None:
                watermark_s = max(watermark_s, entry.watermark_ms / 1000)
        assert seen > 0
        assert finance.check(engine.rows("out"), rows) == []
    finally:
        engine.stop()


LEFT = 200  # rows, one per second; every second row has a match, and the last one is far ahead
EPOCH = datetime(1970, 1, 2, tzinfo=UTC)  # in ms the value fits into a Java Integer, but Spark requires a Long


def outer_join() -> penstock.Dataflow:
    """Join a stream that ends at once with one that starts only on request."""

    def left(n: int) -> tuple[int, datetime]:
        return n, EPOCH + timedelta(seconds=n if n < LEFT else 100_000)

    def right(n: int) -> tuple[int, datetime]:
        return left(2 * n)

    def joined(few: DataFrame, many: DataFrame) -> DataFrame:
        near = F.expr("l.k = r.k and r.ts >= l.ts and r.ts <= l.ts + interval 10 seconds")
        return few.alias("l").join(many.alias("r"), near, "leftOuter").selectExpr("l.k as k", "r.k as found")

    flow = penstock.Dataflow("outer")
    schema, watermark = "k bigint, ts timestamp", ("ts", "20 seconds")
    ended = flow.source("ended", penstock.generate(left, schema=schema, rows=LEFT + 1), watermark=watermark)
    slow = penstock.generate(right, schema=schema, rows=LEFT // 2 + 1, rows_per_s=0.5)
    goes_on = flow.source("goes_on", slow, watermark=watermark)
    join = flow.keyed("join", joined, keys=["k"], inputs=[ended, goes_on], output_mode="append")
    join.sink("out", penstock.memory())
    return flow


def await_ended_stream(engine: Any) -> None:
    """Wait until the join has read all rows of the ended stream."""

    def taken() -> bool:
        at = {source.origin: engine.position(query, source) for query in engine.queries for source in query.inputs}
        return at["ended"] == {"row": LEFT + 1} and at.get(Edge("ended", "join")) in (None, {"entry": 1})

    wait_until(taken, engine)


def outer_rows(engine: Any) -> list[tuple[int, int | None]]:
    play(engine, [])
    return sorted((row["k"], row["found"]) for row in engine.rows("out"))


OUTER = [(n, n if n % 2 == 0 else None) for n in range(LEFT + 1)]


@pytest.mark.parametrize(
    ("before", "replicas", "after"),
    [(set(), 3, set()), (set(), 2, {"ended"}), ({"ended"}, 2, set()), ({"ended", "goes_on"}, 3, {"ended", "goes_on"})],
    ids=["replicas", "cut_comes", "cut_goes", "replicas_behind_cuts"],
)
def test_an_ended_input_delays_nothing_after_a_change(
    spark: SparkSession, tmp_path: Path, before: set[str], replicas: int, after: set[str]
) -> None:
    flow = outer_join()
    engine = engine_for(flow, spark, tmp_path / "run", plan_of(flow, {"join": 2}, before))
    try:
        engine.start()
        await_ended_stream(engine)
        engine.apply(plan_of(flow, {"join": replicas}, after))
        assert outer_rows(engine) == OUTER
    finally:
        engine.stop()


def test_an_ended_input_delays_nothing_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """The run is started three times; only the first start reads rows of the ended stream."""
    for start in range(3):
        engine = engine_for(outer_join(), spark, tmp_path / "run")
        try:
            engine.start()
            await_ended_stream(engine)
            if start == 2:
                assert outer_rows(engine) == OUTER
        finally:
            engine.stop()


def test_a_spark_that_does_not_show_its_watermarks_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watermarks = InputWatermarks(tmp_path, {"left": object(), "right": object()})
    for _ in range(2):
        watermarks.save(object())  # lacks the methods that are called
    assert [record.levelname for record in caplog.records] == ["WARNING"]
