"""`penstock.profile` on Spark: a killed study resumes, and the output of the profiled plan is exact."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.apps.stepwise import diamond
from penstock.plan import default_plan
from penstock.store import StoreError, StoreReader, Trial
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
DRIVER = """
import sys
import penstock
penstock.profile(sys.argv[1], slots=2, latency_s=2.0, at=sys.argv[2])
"""


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
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(file), str(at)], stderr=log)
        try:
            while driver.poll() is None and not trials_in(at):
                time.sleep(0.1)
            driver.send_signal(signal.SIGKILL)
            assert driver.wait() == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
    (features,) = trials_in(at)
    assert features.profile is not None
    cost = next(operator for operator in features.profile.operators if operator.operator == "wait")
    assert cost.min_latency_s > 0.0015  # it waits for 2 ms; a busy machine may add to it
    assert cost.rows_in == pytest.approx(1.0, rel=0.2)

    def interrupt(progress: ProfileProgress) -> None:
        if progress.rounds == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        penstock.profile(str(file), spark=spark, latency_s=2.0, at=at, on_progress=interrupt)
    kept, first = trials_in(at)
    assert kept == features
    assert first.rows_per_s is not None and first.rows_per_s > 0
    # Two tasks process 1,000 rows/s at most.
    assert first.rows_per_s <= first.plan.replicas["wait"] * 500 * 1.1
    file.write_text(FLOW.replace("0.002", "0.003"))
    with pytest.raises(penstock.PenstockError, match="has trials of an earlier version of 'waiting'"):
        penstock.profile(str(file), spark=spark, latency_s=2.0, at=at)


def test_the_output_of_a_plan_with_cuts_is_exact(spark: Any, tmp_path: Path) -> None:
    rows = 60
    flow = diamond.flow(rows=rows, work="json")
    plan = default_plan(flow, slots=2, replicas={"compute": 2, "parse": 1, "wait": 1, "wait_again": 1, "merge": 2})
    plan = plan.replace(cuts=plan.cuts | {"compute"})  # as step 3 adds it
    with penstock.run(flow, spark=spark, at=tmp_path / "run", plan=plan) as run:
        run.wait_until_idle()
        assert diamond.check(run.rows("out"), rows, work="json") == []
