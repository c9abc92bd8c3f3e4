"""The arena on the engine of formulas: exhaustive search, and who comes first."""

from __future__ import annotations

import math
from pathlib import Path

from applications import VIDEO_SERVICE, allocations, mean_s, plan_of, video
from memory_engine import FakeClock
from queueing_engine import QueueingEngine

from penstock.control.arena import best_plan, compete, every_plan, league
from penstock.control.controller import Settings
from penstock.control.guards import Hysteresis
from penstock.control.policies.drs import Drs, DrsSettings, LeastSojourn
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.rehearsal import rehearse
from penstock.control.scenarios import SCENARIOS
from penstock.control.shape import Shape
from penstock.engines.simulated import SimulatedEngine
from penstock.measure.smoothing import Windowed
from penstock.plan import Plan
from penstock.store import Store

VISITS = {"extract": 1.0, "match": 1.0, "aggregate": 1.0}


def judged(plan: Plan) -> float:
    return mean_s(VISITS, 13.0, VIDEO_SERVICE, plan.replicas)


def test_every_plan_is_tried_once() -> None:
    flow = video()
    tried = [plan.replicas for plan in every_plan(Shape.of(flow), plan_of(flow, {"extract": 1}), 22)]
    assert len(tried) == math.comb(21, 2)
    by_product = [dict(counts) for counts in allocations(list(VIDEO_SERVICE), 22)]
    assert sorted(map(repr, tried)) == sorted(map(repr, by_product))


def test_drs_comes_first_in_fewer_changes_than_the_baselines() -> None:
    flow = video()
    start = plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1})
    best, best_s = best_plan(Shape.of(flow), start, 22, judged)
    assert best.replicas == {"extract": 10, "match": 11, "aggregate": 1}

    def make() -> tuple[QueueingEngine, FakeClock]:
        clock = FakeClock()
        return QueueingEngine(
            flow, start, clock=clock, rate=lambda _: 13.0, service_per_s=VIDEO_SERVICE, pause_s=2.0
        ), clock

    settings = Settings(mode="active", smoothing=Windowed(2), warm_up_s=0.0, stale_after_s=180.0)
    policies = [Threshold(), Stela(attempts=5), Ds2(), Drs(DrsSettings(goal=LeastSojourn(max_slots=22)))]
    table = league(
        [
            compete(policy, make, windows=100, every_s=60.0, settings=settings, judge=judged, best_s=best_s, max_s=3.0)
            for policy in policies
        ]
    )
    assert table[0].policy == "drs"
    assert table[0].share > 0.99 and table[0].rounds == table[0].changes == 1
    others = {one.policy: one for one in table[1:]}
    assert others["threshold"].changes > 5 and others["stela"].changes > 1
    assert all(one.rounds is None or one.rounds > 1 for one in others.values())
    assert all(one.slot_seconds > 0 and one.violations > 0 for one in table)


def test_a_plan_that_drains_a_backlog_is_not_rolled_back(tmp_path: Path) -> None:
    """Minutes at a tenth of what comes leave a backlog that the best plan works off for longer than it took to make."""
    flow, behaviour = SCENARIOS["video"]()
    start = plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1})
    engine = SimulatedEngine(flow, behaviour, plan=start, seed=1)
    settings = Settings(mode="active", smoothing=Windowed(4), warm_up_s=30.0, stale_after_s=180.0)
    policy = Hysteresis(Drs(DrsSettings(goal=LeastSojourn(max_slots=22))), gain=0.05)
    with Store(tmp_path) as store:
        sums, changes = rehearse(policy, engine, engine.clock, store, windows=60, every_s=30.0, settings=settings)
        last = store.windows(last=1)[0][1].sojourn
    assert [row.verdict for row in changes] == ["kept"] and sums.rolled_back == 0
    assert last is not None and last.mean_s < 3.0  # the best plan's is 1.7 s
