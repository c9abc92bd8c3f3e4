"""The policy `stepwise` on Spark: it applies the profiled plan, and it notices that the words per line double."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour

pytestmark = pytest.mark.spark

WAIT_S = 0.02  # per word
LINES_PER_S = 16
LONGER_FROM = 15 * LINES_PER_S  # the first line with more words
WORDS, MORE_WORDS = 4, 8


def split(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    words = WORDS if row["n"] < LONGER_FROM else MORE_WORDS
    return ({"word": number} for number in range(words))


def count(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return row


def line(number: int) -> int:
    return number


def words() -> penstock.Dataflow:
    flow = penstock.Dataflow("words")
    lines = flow.source("lines", penstock.generate(line, schema="n bigint", rows_per_s=LINES_PER_S))
    lines.rows("split", split, schema="word bigint").rows("count", count, schema="word bigint").sink(
        "out", penstock.noop()
    )
    return flow


def test_the_profiled_plan_and_longer_lines(spark: object, tmp_path: Path) -> None:
    """Two slots sustain at most 25 short lines/s and 12.5 long ones; 16 arrive."""
    costs = {
        "split": OperatorBehaviour(selectivity=Fixed(value=WORDS)),
        "count": OperatorBehaviour(service_s=Fixed(value=WAIT_S)),
    }
    profile = penstock.profile(
        words(),
        slots=2,
        behaviour=Behaviour(operators=costs),
        engine="micro-batch",
        latency_s=5.0,
        at=tmp_path / "study",
    )
    assert 16.0 < profile.rows_per_s <= 25.0
    smallest = profile.plan.replace(replicas=dict.fromkeys(profile.plan.replicas, 1))
    with penstock.run(
        words(),
        at=tmp_path / "run",
        plan=smallest,
        policy="stepwise",
        profile=tmp_path / "study",
        mode="active",
        drift_s=8.0,
        window_s=1.0,
        windows=2,
        warm_up_s=2.0,
        cooldown_s=1.0,
    ) as run:
        deadline_s = time.monotonic() + 400.0
        while not (drifts := [row for row in _reasons(run) if "data has changed" in row]):
            assert time.monotonic() < deadline_s and run.is_running, _reasons(run)
            time.sleep(0.2)
        decisions = run.decisions()
        rows = run.status().window.operator("lines").rows_in_total  # type: ignore[union-attr]
    changes = decisions[decisions.kind == "change"]
    assert changes.iloc[0].reason_code == "profiled"
    assert run.plan is not None and run.plan.replicas == profile.plan.replicas
    assert drifts and rows is not None and rows >= LONGER_FROM


def _reasons(run: penstock.Run) -> list[str]:
    return list(run.decisions().reason)
