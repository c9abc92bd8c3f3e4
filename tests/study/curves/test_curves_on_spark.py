"""Curves on Spark: the rate of an operator that waits rises with its threads, that of one that computes does not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.engines.spark import cluster
from penstock.engines.spark.cluster import ClusterSize

pytestmark = pytest.mark.spark

FLOW = """
import time
import penstock

def wait(row):
    time.sleep(0.1)
    return {"n": 2 * row["n"]}

def compute(row):
    began = time.thread_time()
    while time.thread_time() - began < 0.01:
        pass
    return row

flow = penstock.Dataflow("shop")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=1_000, rows_per_s=100))
waited = numbers.rows("wait", wait, "n bigint", threads=2)
waited.rows("compute", compute, "n bigint", threads=2).sink("out", penstock.noop())
"""


def command(folder: Path, operator: str, threads: str, *options: str) -> list[str]:
    """Return the command of a study. Another process has the session."""
    file = folder / "shop.py"
    file.write_text(FLOW)
    words = [
        str(file),
        "--operator",
        operator,
        "--threads",
        threads,
        "--resolution",
        "0.3",
        "--window",
        "0.6",
        *options,
    ]
    return [sys.executable, "-m", "penstock.cli", "curves", "measure", *words, "--at", str(folder / "study"), "--json"]


def peaks(folder: Path, operator: str, threads: str, *options: str) -> dict[int, float]:
    """Return the peak rates by number of threads."""
    result = subprocess.run(command(folder, operator, threads, *options), capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-3_000:]
    (curve,) = json.loads(result.stdout)
    assert curve["ended"] and all(peak["cpu"] >= 0 and 0 <= peak["memory"] <= 100 for peak in curve["peaks"])
    return {peak["threads"]: peak["rows_per_s"] for peak in curve["peaks"]}


@pytest.mark.timeout(1_000)
def test_the_rate_of_a_waiting_operator_rises_with_its_threads(tmp_path: Path) -> None:
    measured = peaks(tmp_path, "wait", "1,4")
    # A row takes 100 ms. By how much more threads help depends on what else the machine does.
    assert measured[1] <= 10.0 and measured[1] < measured[4] <= 40.0


@pytest.mark.soak
@pytest.mark.timeout(2_000)
def test_the_rate_of_a_computing_operator_is_flat(tmp_path: Path) -> None:
    measured = peaks(tmp_path, "compute", "1,2,4")
    assert max(measured.values()) <= 100.0  # 10 ms of CPU per row
    assert measured[4] <= 1.6 * measured[1]


@pytest.mark.soak
@pytest.mark.timeout(2_000)
def test_a_killed_study_continues_with_its_trials(tmp_path: Path) -> None:
    stored = tmp_path / "study" / "operators" / "wait.json"
    study = subprocess.Popen(command(tmp_path, "wait", "1"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not stored.exists():
        assert study.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    study.kill()
    study.wait()
    trials = json.loads(stored.read_text())["trials"]
    assert trials and json.loads(stored.read_text())["ended"] is None
    measured = peaks(tmp_path, "wait", "1")
    after = json.loads(stored.read_text())
    assert after["trials"][: len(trials)] == trials and len(after["trials"]) > len(trials)
    assert after["ended"] and measured[1] <= 10.0


@pytest.mark.soak
@pytest.mark.timeout(2_000)
def test_an_operator_with_an_executor_of_its_own_is_measured(tmp_path: Path) -> None:
    size = ClusterSize(workers=3, slots=1, memory_mb=512)
    with cluster.start(tmp_path / "cluster", size, ends_with_process=True, patience_s=1200) as up:
        measured = peaks(tmp_path, "wait", "1,4", "--cluster", str(up.at))
    assert measured[1] <= 10.0 and measured[1] < measured[4] <= 40.0
    plan = json.loads((tmp_path / "study" / "trials" / "plan.json").read_text())
    assert [(query["operators"], query["groups"]) for query in plan["queries"]] == [
        (["wait_input"], {}),
        (["wait"], {"wait": "measured"}),
        (["wait_output"], {}),
    ]
