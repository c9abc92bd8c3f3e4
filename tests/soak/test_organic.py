"""The policy `organic` on Spark: cuts follow a load that rises and falls, and the output stays exact."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.apps.joker import waiting
from penstock.control.policies.adaptation_parameters import Variant

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def until(condition: Callable[[], bool], run: penstock.Run) -> None:
    deadline_s = time.monotonic() + 400.0
    while not condition():
        assert time.monotonic() < deadline_s and run.is_running, run.decisions()[["reason_code", "reason"]].tail(12)
        time.sleep(0.3)


def test_cuts_follow_a_load_that_rises_and_falls(spark: object, tmp_path: Path) -> None:
    """One slot processes 1 row in 40 ms: 25 rows/s. With a cut, two slots process 50 rows/s."""
    flow = waiting.flow(penstock.memory(), keyed_ms=20.0, stateless_ms=20.0, rows_per_s=8.0)
    plan = penstock.default_plan(flow, slots=2, replicas={"keyed": 1})
    with penstock.run(
        flow,
        at=tmp_path,
        plan=plan,
        policy="organic",
        mode="active",
        max_slots=2,
        adaptation=penstock.AdaptationParameters(variant=Variant.FUSION_ONLY, period_s=4.0, stable_periods=2),
        window_s=1.0,
        warm_up_s=1.0,
        cooldown_s=0.0,
        batch_s=0.5,
    ) as run:
        until(lambda: run.status().window is not None and len(run.rows("out")) > 0, run)
        run.set_rate("numbers", 35.0)
        until(lambda: run.plan is not None and run.plan.cuts == {"keyed"}, run)
        until(lambda: "kept" in set(run.decisions(changes_only=True).verdict), run)
        run.set_rate("numbers", 4.0)
        until(lambda: run.plan is not None and run.plan == plan, run)
        run.set_rate("numbers", 0.0)
        until(lambda: is_processed(run), run)
        changes = [row for _, row in run.decision_rows(changes_only=True)[0]]
    output = run.rows("out")
    assert waiting.check(output, len(output)) == []
    assert all(row.applied == "ok" and row.pause_s for row in changes)  # the pause of every change is reported
    assert [row.inputs["moved_state_bytes"] for row in changes] == [0.0] * len(changes)  # cuts move no state


def is_processed(run: penstock.Run) -> bool:
    window = run.status().window
    if window is None or window.external_rows_per_s != 0.0 or window.operator("numbers").backlog_rows != 0:
        return False
    return len({operator.rows_in_total for operator in window.operators}) == 1
