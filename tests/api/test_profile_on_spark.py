"""`penstock.profile` on Spark: a killed study resumes, and the output of the profiled plan is exact."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.api.profiling import ProfileOptions, prepared
from penstock.apps.stepwise import diamond
from penstock.plan import default_plan
from penstock.store import ProfiledOperator, StoreError, StoreReader, Trial
from penstock.study.stepwise.profile import ProfileProgress

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


def study_of(file: str, at: Path, spark: Any, on_progress: Callable[[ProfileProgress], None] | None = None) -> None:
    """Profile with known features, because they take longer than a round."""
    options = ProfileOptions(latency_s=1.0, engine="spark", slice=0.3, k=2.0, alpha=0.9, types={}, seed=0)
    study = prepared(file, options, behaviour=None, like=None, cluster=None, spark=spark)
    study.run(study.platform(2, None), at, on_progress, FEATURES)


def trials_in(at: Path) -> list[Trial]:
    try:
        with StoreReader(at) as store:
            return list(store.trials())
    except StoreError:  # not created yet
        return []


def test_a_killed_study_resumes(spark: Any, tmp_path: Path) -> None:
    file, at = tmp_path / "waiting.py", tmp_path / "study"
    file.write_text(FLOW)
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen([sys.executable, "-m", __name__, str(file), str(at)], stderr=log)
        try:
            while driver.poll() is None and not (at / "trials" / "plan.json").exists():  # the engine has started
                time.sleep(0.1)
            driver.send_signal(signal.SIGKILL)
            assert driver.wait() == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
    (features,) = trials_in(at)

    def interrupt(progress: ProfileProgress) -> None:
        if progress.rounds == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study_of(str(file), at, spark, interrupt)
    kept, first = trials_in(at)
    assert kept == features
    assert first.profile is not None and first.profile.latency_s is not None and first.rows_per_s is not None
    # A task processes 500 rows/s at most, because it waits 2 ms for each row.
    assert 0 < first.rows_per_s <= first.plan.replicas["wait"] * 500 * 1.1
    assert not (at / "trials").exists()
    file.write_text(FLOW.replace("0.002", "0.003"))
    with pytest.raises(penstock.PenstockError, match="has trials of an earlier version of 'waiting'"):
        study_of(str(file), at, spark)


def test_the_output_of_a_plan_with_cuts_is_exact(spark: Any, tmp_path: Path) -> None:
    rows = 60
    flow = diamond.flow(rows=rows, work="json")
    plan = default_plan(flow, slots=2, replicas={"compute": 2, "parse": 1, "wait": 1, "wait_again": 1, "merge": 2})
    plan = plan.replace(cuts=plan.cuts | {"compute"})  # as step 3 adds it
    with penstock.run(flow, spark=spark, at=tmp_path / "run", plan=plan) as run:
        run.wait_until_idle()
        assert diamond.check(run.rows("out"), rows, work="json") == []


if __name__ == "__main__":
    study_of(sys.argv[1], Path(sys.argv[2]), None)
