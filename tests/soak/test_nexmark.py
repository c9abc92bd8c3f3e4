"""All Nexmark queries under random plan changes, and with drivers that are killed at random moments."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps import nexmark
from tests.support.killed_runs import check_killed_run
from tests.support.nexmark_runs import SMALL
from tests.support.spark_runs import engine_for, play, random_plan

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

ROWS = 4_000
CHANGES = int(os.environ.get("SOAK_CHANGES", "6"))
KILLS = int(os.environ.get("SOAK_KILLS", "3"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
every_query = pytest.mark.parametrize("query", nexmark.QUERIES, ids=lambda query: query.__name__.rpartition(".")[2])


@every_query
def test_output_is_exact_after_random_plan_changes(spark: SparkSession, tmp_path: Path, query: ModuleType) -> None:
    flow = query.flow(output=penstock.memory(), rows=ROWS, rows_per_s=400, **SMALL)
    chance = random.Random(f"{SEED} {query.__name__}")
    engine = engine_for(flow, spark, tmp_path, max_batch_rows=170)
    try:
        engine.start()
        play(engine, [random_plan(flow, chance) for _ in range(CHANGES)])
        assert query.check(engine.rows("out"), ROWS, **SMALL) == []
    finally:
        engine.stop()


@every_query
def test_output_is_exact_after_kills(spark: SparkSession, tmp_path: Path, query: ModuleType) -> None:
    app = query.__name__.removeprefix("penstock.apps.")
    check_killed_run(app, SMALL, ROWS, tmp_path / "run", spark, kills=KILLS, seed=SEED, inside=len(app) % 2 == 0)
