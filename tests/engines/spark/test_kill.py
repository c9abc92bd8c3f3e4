"""kill -9 of the driver at any time, also during a plan change: after resuming, the output is exact."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.killed_runs import check_killed_run
from tests.support.nexmark_runs import SMALL

pytestmark = pytest.mark.spark

ROWS = 2_000
APPS: dict[str, dict[str, int]] = {
    "wordcount": {},
    "netmon": {"threshold": 1},
    "finance": {},
    "nexmark.q5": SMALL,
    "joker.sum_barrier": {"batch": 3},
}


def check(app: str, at: Path, spark: SparkSession, kills: int, seed: int, inside: bool) -> int:
    return check_killed_run(app, APPS[app], ROWS, at, spark, kills=kills, seed=seed, inside=inside)


@pytest.mark.parametrize(
    ("app", "inside"), [("wordcount", True), ("finance", False), ("nexmark.q5", False), ("joker.sum_barrier", True)]
)
def test_exact_after_a_kill(app: str, inside: bool, spark: SparkSession, tmp_path: Path) -> None:
    killed = check(app, tmp_path / "run", spark, kills=1, seed=len(app), inside=inside)
    assert killed or not inside


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_soak(spark: SparkSession, tmp_path: Path) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "30"))
    seed = int(os.environ.get("SOAK_SEED", str(int(time.time()))))
    deadline = time.monotonic() + minutes * 60
    runs = kills = 0
    while time.monotonic() < deadline:
        app = list(APPS)[runs % len(APPS)]
        kills += check(app, tmp_path / f"{runs}" / "run", spark, kills=4, seed=seed + runs, inside=runs % 2 == 0)
        runs += 1
        print(f"soak: {runs} runs, {kills} kills, nothing lost or doubled (seed {seed})", flush=True)
    assert runs > 0
