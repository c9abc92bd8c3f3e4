"""`penstock.profile` on Spark: a killed study resumes and ends, and the output of a profiled plan is exact."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock
from penstock.api.profiling import PreparedProfile, ProfileOptions, prepared
from penstock.apps.stepwise import diamond, linear
from penstock.plan import default_plan
from penstock.store import ProfiledOperator, StoreError, StoreReader, Trial
from penstock.study.stepwise.profile import Profile
from penstock.study.stepwise.sequential_test import TrialLimits
from penstock.study.stepwise.study import StepwiseSettings

pytestmark = pytest.mark.spark

FLOW = """
import time
import penstock

def wait(row):
    time.sleep(0.002)
    return row

flow = penstock.Dataflow("waiting")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=100, rows_per_s=10.0))
numbers.rows("wait", wait, schema="n bigint").sink("out", penstock.noop())
"""
STREAMS = {"numbers": {"wait": 0.5}, "wait": {"out": 0.5}, "out": {}}
FEATURES = tuple(
    ProfiledOperator(
        operator=name,
        type="proportional",
        min_latency_s=0.002 if name == "wait" else 0.0,
        rows_in=1.0,
        streams=streams,
    )
    for name, streams in STREAMS.items()
)


LIMITS = TrialLimits(min_windows=2, max_windows=3, max_warm_up=4, tolerance=0.05)
ROUNDS = 3


class ShortProfile(PreparedProfile):
    """A profile with few and short trials."""

    def _settings(self, slots: int) -> StepwiseSettings:
        return replace(super()._settings(slots), limits=LIMITS, max_rounds=ROUNDS)


def study_of(file: str, at: Path, slots: int | None) -> Profile:
    """Profile with known features, because they take longer than a round."""
    options = ProfileOptions(latency_s=1.0, engine="spark", slice=0.3, k=2.0, alpha=0.9, types={}, seed=0)
    study = prepared(file, options, behaviour=None, like=None, cluster=None, spark=None)
    short = ShortProfile(**{field.name: getattr(study, field.name) for field in fields(study)})
    return short.run(short.platform(slots, None), at, None, FEATURES)


def trials_in(at: Path) -> list[Trial]:
    try:
        with StoreReader(at) as store:
            return list(store.trials())
    except StoreError:  # not created yet
        return []


def test_a_killed_study_resumes_and_ends_with_a_plan(spark: Any, tmp_path: Path) -> None:
    file, at = tmp_path / "waiting.py", tmp_path / "study"
    file.write_text(FLOW)
    slots = int(spark.sparkContext.defaultParallelism)
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen([sys.executable, "-m", __name__, str(file), str(at), str(slots)], stderr=log)
        try:
            while driver.poll() is None and len(trials_in(at)) < 2:  # the features and a round
                time.sleep(0.2)
            driver.send_signal(signal.SIGKILL)
            assert driver.wait() == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
    survived = trials_in(at)
    assert 2 <= len(survived) <= ROUNDS
    assert not (at / "profile.json").exists()

    result = study_of(str(file), at, None)  # on the active session, which stays open
    assert spark.range(1).count() == 1
    trials = trials_in(at)
    assert trials[: len(survived)] == survived and len(trials) == 1 + len(result.rounds)
    assert penstock.Plan.from_json((at / "plan.json").read_bytes()) == result.plan == trials[result.best].plan
    first = trials[1]
    assert first.rows_per_s is not None
    # A task processes 500 rows/s at most, because it waits 2 ms for each row.
    assert 0 < first.rows_per_s <= first.plan.replicas["wait"] * 500 * 1.1
    assert not (at / "trials").exists()
    file.write_text(FLOW.replace("0.002", "0.003"))
    with pytest.raises(penstock.PenstockError, match="has trials of an earlier version of 'waiting'"):
        study_of(str(file), at, None)


@pytest.mark.parametrize("app", [linear, diamond])
def test_the_output_of_a_profiled_plan_is_exact(app: ModuleType, spark: Any, tmp_path: Path) -> None:
    rows = 60
    costs = app.behaviour(work="json")
    profile = penstock.profile(
        app.flow(work="json"), slots=4, behaviour=costs, engine="micro-batch", latency_s=3.0, at=tmp_path / "study"
    )
    assert max(profile.plan.replicas.values()) > 1
    flow = app.flow(rows=rows, work="json")
    with penstock.run(flow, spark=spark, at=tmp_path / "run", plan=tmp_path / "study" / "plan.json") as run:
        run.wait_until_idle()
        assert app.check(run.rows("out"), rows, work="json") == []


def test_the_output_of_a_plan_with_cuts_is_exact(spark: Any, tmp_path: Path) -> None:
    rows = 60
    flow = diamond.flow(rows=rows, work="json")
    plan = default_plan(flow, slots=2, replicas={"compute": 2, "parse": 1, "wait": 1, "wait_again": 1, "merge": 2})
    plan = plan.replace(cuts=plan.cuts | {"compute"})  # as step 3 adds it
    with penstock.run(flow, spark=spark, at=tmp_path / "run", plan=plan) as run:
        run.wait_until_idle()
        assert diamond.check(run.rows("out"), rows, work="json") == []


if __name__ == "__main__":
    study_of(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
