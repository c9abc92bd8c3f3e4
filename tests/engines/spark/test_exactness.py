"""Exactness: under any sequence of plans, the output equals that of one batch over the same input."""

from __future__ import annotations

import os
import tempfile
from operator import ne
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from penstock.apps import finance, netmon, wordcount
from penstock.apps.joker import sum_barrier
from tests.support.spark_runs import engine_for, plans, play

ROWS = 1_200
EXAMPLES = int(os.environ.get("PENSTOCK_SEQUENCES", "1"))
# Rare losses show only if every address counts, hence no threshold.
APPS = [(wordcount, {}), (netmon, {"threshold": 1}), (finance, {}), (sum_barrier, {"batch": 3})]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("app", "how"), APPS, ids=lambda parameter: getattr(parameter, "__name__", "").rpartition(".")[2]
)
def test_output_is_exact_after_any_sequence_of_plan_changes(
    spark: SparkSession, app: ModuleType, how: dict[str, Any]
) -> None:
    flow = app.flow(output=penstock.memory(), rows=ROWS, rows_per_s=2_000, **how)

    # The simplest sequence, with which hypothesis begins, has no change.
    sequences = st.lists(plans(flow), min_size=3, max_size=3).filter(lambda plans: all(map(ne, plans, plans[1:])))

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(sequences)
    def check(sequence: list[penstock.Plan]) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
            engine = engine_for(flow, spark, Path(at) / "run", sequence[0])
            try:
                engine.start()
                play(engine, sequence[1:])
                assert app.check(engine.rows("out"), ROWS, **how) == []
            finally:
                engine.stop()

    check()
