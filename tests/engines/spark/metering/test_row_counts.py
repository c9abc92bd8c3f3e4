"""Rows of operators that emit one row per row are known from their input, without an observation."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from tests.support.spark_runs import engine_for, wait_until

pytestmark = pytest.mark.spark
ROWS = 200


def test_rows_are_exact_with_few_observations(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("counted")
    source = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=ROWS))
    doubled = source.stateless("doubled", lambda df: df.select((F.col("n") * 2).alias("n")))
    pairs = doubled.stateless("pairs", lambda df: df.select(F.explode(F.array("n", "n")).alias("n")))
    some = pairs.stateless("some", lambda df: df.where("n % 8 = 0"))
    text = some.stateless("text", lambda df: df.select(F.col("n").cast("string").alias("t")))
    text.sink("out", penstock.foreach_batch(lambda df, batch: df.collect() and None))
    plan = penstock.recut(flow, penstock.default_plan(flow, slots=2), cut=["pairs"])
    engine = engine_for(flow, spark, tmp_path / "run", plan)
    try:
        engine.start()
        wait_until(engine.idle, engine)
        window = engine.observe()
        observed = {
            name.removeprefix("__penstock_rows_")
            for query in engine.queries
            for batch in engine.running(query).recentProgress
            for name in batch["observedMetrics"]
        }
    finally:
        engine.stop()
    # 'pairs' is counted by the channel. The function of the sink is not, so that the rows before it are observed.
    assert observed == {"some", "text"}
    kept = sum(2 for n in range(ROWS) if 2 * n % 8 == 0)
    expected = {"doubled": (ROWS, ROWS), "pairs": (ROWS, 2 * ROWS), "some": (2 * ROWS, kept), "text": (kept, kept)}
    rows = {operator.operator: (operator.rows_in_total, operator.rows_out_total) for operator in window.operators}
    assert {name: rows[name] for name in expected} == expected
