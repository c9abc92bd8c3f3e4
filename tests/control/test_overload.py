"""Policies under a load that no previous plan could serve, on simulated rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control.arena.scenarios import video
from penstock.control.policies.stela import Stela
from penstock.control.policy import Situation
from penstock.control.topology import Topology
from penstock.engines.simulated import SimulatedEngine
from penstock.plan import default_plan
from tests.support.driving import drive


def logos(*counts: int, seed: int = 1) -> SimulatedEngine:
    flow, behaviour = video()
    replicas = dict(zip(("extract", "match", "aggregate"), counts, strict=True))
    return SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=22, replicas=replicas), seed=seed)


def test_a_row_that_waits_counts_once() -> None:
    engine = logos(5, 4, 1)
    engine.start()
    engine.advance(600.0)
    window = engine.observe()
    situation = Situation(
        now_s=window.end_s,
        topology=Topology.of(engine.flow),
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=22,
    )
    came, gone = (window.operator(name).rows_in_total for name in ("frames", "logos"))
    assert came is not None and gone is not None and came - gone > 1_000
    assert came - gone - 10 <= situation.backlog_rows(window) <= came - gone  # ten of them may be in service


@pytest.mark.parametrize("seed", [4, 5, 7])
def test_a_replica_that_does_not_suffice_alone_is_not_taken_back_under_an_overload(seed: int, tmp_path: Path) -> None:
    """Extraction and matching both have too few replicas: more replicas of one help only if the other grows too."""
    engine = logos(7, 8, 1, seed=seed)
    rows = drive(tmp_path, engine, engine.clock, Stela(), windows=60, window_s=30.0, warm_up_s=30.0, max_slots=22)
    assert {row.reason_code for row in rows if row.kind == "change"} == {"congestion"}
    assert engine.plan.replicas["extract"] * 1.6 > 13.0 and engine.plan.replicas["match"] * 1.4 > 13.0
