"""The policy `organic` on Spark: cuts and replicas follow a load that rises in steps and falls; the output stays exact."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.apps.joker import waiting
from penstock.plan import Plan, PlanDiff, diff
from penstock.store import DecisionRecord
from tests.support.organic_run import first_plan

pytestmark = pytest.mark.spark

LOADS = (8.0, 40.0, 80.0, 3.0)  # rows/s; one slot processes 25, and two with a cut process 50


class LiveRun:
    """A run in a process of its own, which this process controls by requests."""

    def __init__(self, process: subprocess.Popen[bytes], at: Path) -> None:
        self._process, self._at = process, at

    @property
    def record(self) -> penstock.RunRecord:
        return penstock.open_run(self._at)

    @property
    def plan(self) -> Plan:
        plan = self.record.plan
        assert plan is not None
        return plan

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 500.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert self._process.poll() is None and time.monotonic() < deadline_s, self.explanation()
            time.sleep(0.3)

    def explanation(self) -> str:
        decisions = "\n".join(f"{row.at_s:.0f} {row.reason_code} {row.reason}" for _, row in self.decisions()[-20:])
        return decisions + (self._at.parent / "log").read_text()[-2000:]

    def decisions(self) -> list[tuple[int, DecisionRecord]]:
        return self.record.decision_rows()[0]

    def changes(self) -> list[PlanDiff]:
        """Return the applied changes."""
        rows = [row for _, row in self.decisions() if row.applied == "ok"]
        return [diff(row.old, row.new) for row in rows if row.new is not None]

    def is_processed(self) -> bool:
        """Return whether no more rows arrive and all rows have reached the sink."""
        window = self.record.status().window
        if window is None or window.external_rows_per_s != 0.0 or window.operator("numbers").backlog_rows != 0:
            return False
        return len({operator.rows_in_total for operator in window.operators}) == 1


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRun]:
    at = tmp_path / "run"
    command = [sys.executable, "-m", "tests.support.organic_run", str(at), str(LOADS[0])]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            run = LiveRun(process, at)
            deadline_s = time.monotonic() + 500.0
            while not list(at.glob("memory/out/*")):
                assert process.poll() is None and time.monotonic() < deadline_s, (tmp_path / "log").read_text()
                time.sleep(0.2)
            yield run
        finally:
            process.kill()


def test_cuts_and_replicas_follow_a_load_in_both_directions(live: LiveRun) -> None:
    live.record.set_rate("numbers", LOADS[1])
    live.wait_until(lambda: live.plan != first_plan())
    live.record.set_rate("numbers", LOADS[2])
    live.wait_until(lambda: bool(live.plan.cuts) and live.plan.replicas["keyed"] >= 2)
    rising = len(live.changes())
    live.record.set_rate("numbers", LOADS[3])
    live.wait_until(lambda: removes_cuts(live.changes()[rising:]) and lowers_replicas(live.changes()[rising:]))
    live.record.set_rate("numbers", 0.0)
    live.wait_until(live.is_processed)

    output = live.record.rows("out")
    assert waiting.check(output, len(output)) == []
    changes = [row for _, row in live.decisions() if row.kind == "change"]
    assert all(row.applied == "ok" and row.pause_s for row in changes), [(row.applied, row.pause_s) for row in changes]
    for row in changes:
        assert row.new is not None and row.moved_rows is not None
        if diff(row.old, row.new).replicas:
            assert 0 < row.moved_rows <= waiting.KEYS
        else:
            assert row.moved_rows == 0


def removes_cuts(changes: list[PlanDiff]) -> bool:
    return any(change.cuts_removed for change in changes)


def lowers_replicas(changes: list[PlanDiff]) -> bool:
    counts = [change.replicas["keyed"] for change in changes if "keyed" in change.replicas]
    return any((after or 0) < (before or 0) for before, after in counts)
