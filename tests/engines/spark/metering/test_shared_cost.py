"""Costs that Spark cannot separate are marked as costs of a group, and utilisation never exceeds 100 %."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.plan import default_plan
from tests.support.spark_runs import engine_for, wait_until

pytestmark = pytest.mark.spark


def test_native_operators_of_a_query_share_one_cost(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("native")
    source = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=2_000))
    doubled = source.stateless("doubled", lambda df: df.selectExpr("n * 2 as n"))
    even = doubled.stateless("quarter", lambda df: df.where("n % 8 = 0"))
    hashed = even.stateless("hashed", lambda df: df.selectExpr("n", "sha2(cast(n as string), 512) as h"))
    timed = hashed.rows("timed", lambda row: {"n": row["n"]}, schema="n bigint")
    timed.sink("out", penstock.noop())
    engine = engine_for(flow, spark, tmp_path / "run", default_plan(flow, slots=2))
    try:
        engine.start()
        windows = []

        def is_measured() -> bool:
            time.sleep(0.3)
            windows.append(engine.observe())
            shared = windows[-1].operator("hashed").shared_cost
            return (
                shared is not None and shared.seconds_per_row is not None and bool(windows[-1].operator("out").rows_in)
            )

        wait_until(is_measured, engine)
        group = ("doubled", "quarter", "hashed", "out")
        window = windows[-1]
        costs = {window.operator(name).shared_cost for name in group}
        assert len(costs) == 1
        (shared,) = costs
        assert shared is not None and shared.operators == group
        assert window.operator("timed").shared_cost is None and window.operator("numbers").shared_cost is None
        assert window.operator("doubled").true_rows_per_s is None
        # The parts by rows add up to the total: 1 + 1 + 1/4 rows per row that enters the group.
        parts = [window.operator(name).seconds_per_row or 0.0 for name in group[:3]]
        assert sum(part * visits for part, visits in zip(parts, (1, 1, 0.25), strict=True)) == pytest.approx(
            shared.seconds_per_row, rel=0.05
        )
        for window in windows:
            for operator in window.operators:
                assert operator.utilisation is None or 0 <= operator.utilisation <= 1
                assert operator.shared_cost is None or (operator.shared_cost.utilisation or 0.0) <= 1
    finally:
        engine.stop()


def test_the_utilisation_of_a_batch_longer_than_the_window_stays_within_the_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A batch of several windows has all its rows in the last one."""
    flow = penstock.Dataflow("slow")
    source = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=1_500, rows_per_s=500))
    source.rows("slow", lambda row: time.sleep(0.004) or row, schema="n bigint").sink("out", penstock.memory())
    plan = penstock.rescaled(flow, default_plan(flow, slots=2), {"slow": 1})
    engine = engine_for(flow, spark, tmp_path / "run", plan, batch_s=2.0)
    seen: list[tuple[float | None, int]] = []

    def is_processed() -> bool:
        time.sleep(0.2)
        slow = engine.observe().operator("slow")
        seen.append((slow.utilisation, slow.rows_in or 0))
        return engine.idle()

    try:
        engine.start()
        wait_until(is_processed, engine)
    finally:
        engine.stop()
    assert sum(rows for _, rows in seen) == 1_500
    with_rows = [share for share, rows in seen if rows and share is not None]
    assert with_rows and max(with_rows) <= 1
    assert any(share is None for share, rows in seen)  # in the middle of a batch the share is not known
