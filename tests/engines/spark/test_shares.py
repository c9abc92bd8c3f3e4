"""Replicas with different numbers of threads on Spark: each receives its share of the rows, and the output is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.plan import default_plan, rescaled
from tests.support.spark_runs import engine_for, rows_read, wait_until

pytestmark = pytest.mark.spark

ROWS = 24_000
BUNDLES = (60, 60, 40)


def with_task(row: dict[str, Any]) -> dict[str, Any]:
    context = TaskContext.get()
    assert context is not None
    return {"n": row["n"], "task": context.partitionId()}


def calls(ordered: bool | str) -> Dataflow:
    """Two operators that are replicated together; the second one has threads."""
    flow = penstock.Dataflow("calls")
    stream = flow.source("numbers", penstock.generate(lambda n: {"n": n}, schema="n bigint", rows=ROWS))
    stream = stream.stateless("same", lambda df: df)
    keys = ["n"] if ordered == "key" else None
    stream.rows("call", with_task, "n bigint, task int", threads=8, ordered=ordered, keys=keys).sink(
        "out", penstock.memory()
    )
    return flow


def tasks_of(engine: SparkEngine) -> Counter[int]:
    """Return the rows of each task, after a check that each row is there once."""
    rows = engine.rows("out")
    assert sorted(row["n"] for row in rows) == list(range(ROWS))
    return Counter(row["task"] for row in rows)


@pytest.mark.parametrize(("ordered", "cuts"), [(False, set()), (False, {"same"}), ("key", set())])
def test_bundles_receive_rows_in_proportion_to_their_threads(
    spark: SparkSession, tmp_path: Path, ordered: bool | str, cuts: set[str]
) -> None:
    """Readers of the source and of a channel divide batches into ranges; keys are divided by groups."""
    flow = calls(ordered)
    plan = rescaled(flow, default_plan(flow, slots=2), {"call": len(BUNDLES), "call.threads": BUNDLES})
    plan = plan.replace(cuts=plan.cuts | cuts)
    engine = engine_for(flow, spark, tmp_path / "run", plan)
    try:
        engine.start()
        wait_until(engine.idle, engine)
        rows = tasks_of(engine)
    finally:
        engine.stop()
    assert [rows[task] / ROWS for task in range(3)] == pytest.approx([3 / 8, 3 / 8, 2 / 8], rel=0.05)


def test_even_routing_and_rates_replace_the_threads(spark: SparkSession, tmp_path: Path) -> None:
    """The first rows are divided evenly, the other ones by the rates of the new plan."""
    flow = calls(ordered=False)
    plan = rescaled(flow, default_plan(flow, slots=2), {"call": len(BUNDLES), "call.threads": BUNDLES})
    engine = engine_for(flow, spark, tmp_path / "run", plan.replace(routing="even"), max_batch_rows=ROWS // 4)
    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        engine.apply(engine.plan.replace(routing="capacity", rates={"call": (40.0, 40.0, 20.0)}))
        (query,) = engine.queries
        (source,) = query.inputs
        wait_until(engine.idle, engine)
        rows, even = tasks_of(engine), source.start["row"]
    finally:
        engine.stop()
    assert query.shares["call"] == (0.4, 0.4, 0.2)
    lowest, highest = 0.2 * ROWS, ROWS / 3
    assert lowest <= rows[2] < highest, even
    assert rows[0] == pytest.approx(rows[1], rel=0.05)
