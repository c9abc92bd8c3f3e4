"""Keyed state of every Spark API survives a change of its replicas."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from tests.support.counting_processor import count_with_processor
from tests.support.spark_runs import engine_for, play

pytestmark = pytest.mark.spark

ROWS, KEYS = 4_000, 97


def count_with_group_by(df: DataFrame) -> DataFrame:
    return df.groupBy("k").count().withColumnRenamed("count", "n")


@pytest.mark.parametrize("fn", [count_with_group_by, count_with_processor])
def test_counts_survive_2_5_1_replicas(spark: SparkSession, tmp_path: Path, fn: Any) -> None:
    flow = penstock.Dataflow("counting")
    rows = flow.source("rows", penstock.generate(lambda n: n * n % KEYS, schema="k bigint", rows=ROWS, rows_per_s=500))
    rows.keyed("count", fn, keys=["k"]).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", penstock.default_plan(flow, slots=2, replicas={"count": 2}))
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"count": replicas}) for replicas in (5, 1)])
        assert engine.plan.replicas == {"count": 1}
        counted: Counter[int] = Counter()
        for row in engine.rows("out"):
            counted[row["k"]] = max(counted[row["k"]], row["n"])
        assert counted == Counter(n * n % KEYS for n in range(ROWS))
    finally:
        engine.stop()


def test_a_cut_may_follow_a_state_whose_columns_are_not_all_used(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would remove the unused column from the state, and the channel of the cut needs it."""
    flow = penstock.Dataflow("unused")
    rows = flow.source("rows", penstock.generate(lambda n: n % 7, schema="k bigint", rows=600, rows_per_s=200))
    counts = rows.keyed("count", lambda df: df.groupBy("k").agg(F.count("*").alias("n"), F.sum("k")), keys=["k"])
    counts.stateless("narrow", lambda df: df.select("k", "n")).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        play(engine, [engine.plan.replace(cuts=frozenset({"count"}))])
        counted: Counter[int] = Counter()
        for row in engine.rows("out"):
            counted[row["k"]] = max(counted[row["k"]], row["n"])
        assert counted == Counter(n % 7 for n in range(600))
    finally:
        engine.stop()
