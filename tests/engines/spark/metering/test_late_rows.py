"""Late rows and open windows are counted, also across a change of plan."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from tests.support.spark_runs import engine_for, plan_of, wait_until

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH_ROWS, ROWS = 20, 140
LATE = {70: 0, 71: 1, 90: 2, 91: 3, 92: 4}  # row -> seconds: each in a window of its own, two batches too late


def moment(n: int) -> tuple[datetime]:
    """One row a second; the last one is far ahead, so that only its own window stays open."""
    return (START + timedelta(seconds=100_000 if n == ROWS - 1 else LATE.get(n, n)),)


def per_window(df: DataFrame) -> DataFrame:
    return df.groupBy(F.window("ts", "1 second")).count()


def test_late_rows_and_open_windows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("late")
    rows = penstock.generate(moment, schema="ts timestamp", rows=ROWS, rows_per_s=80)
    windows = flow.source("rows", rows, watermark=("ts", "5 seconds")).keyed("count", per_window, keys=["ts"])
    windows.sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", plan_of(flow, {"count": 2}, set()), max_batch_rows=BATCH_ROWS)
    try:
        engine.start()
        wait_until(
            lambda: any(engine.position(query, query.inputs[0])["row"] >= 80 for query in engine.queries), engine
        )
        engine.apply(plan_of(flow, {"count": 1}, {"rows"}))
        wait_until(engine.idle, engine)
        count = engine.observe().operator("count")
        assert count.late_rows_total == len(LATE)
        assert count.open_windows == count.state_rows == 1
        on_time = [n for n in range(ROWS - 1) if n not in LATE]
        starts = sorted(
            (row["window"]["start"].replace(tzinfo=UTC) - START).total_seconds() for row in engine.rows("out")
        )
        assert starts == on_time
    finally:
        engine.stop()
