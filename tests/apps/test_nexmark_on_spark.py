"""Nexmark on Spark: random plan changes while rows flow, and the output is that of the oracle."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps import nexmark
from tests.support.nexmark_runs import SMALL
from tests.support.spark_runs import engine_for, play, random_plan

pytestmark = pytest.mark.spark

ROWS = 2_000
# One query of each shape: a join without a watermark, a join with two aggregates behind it, an aggregate of an
# aggregate, an aggregate before a join, and session windows. The others run in tests/soak.
QUERIES = [nexmark.q3, nexmark.q11]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__.rpartition(".")[2])
def test_output_is_exact_after_a_random_plan_change(spark: SparkSession, tmp_path: Path, query: ModuleType) -> None:
    flow = query.flow(output=penstock.memory(), rows=ROWS, rows_per_s=1_000, **SMALL)
    engine = engine_for(flow, spark, tmp_path, max_batch_rows=300)
    try:
        engine.start()
        play(engine, [random_plan(flow, random.Random(query.__name__))])
        assert query.check(engine.rows("out"), ROWS, **SMALL) == []
    finally:
        engine.stop()
