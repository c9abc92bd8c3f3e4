"""The arena on the queueing engine: exhaustive search, and the ranking of policies."""

from __future__ import annotations

import io
import math
from itertools import islice, product
from pathlib import Path

import pytest
from rich.console import Console

from penstock.control.arena.comparison import (
    ArenaOptions,
    PolicyResult,
    compare_policies,
    ranked,
    run_policy,
    summarise,
)
from penstock.control.arena.plans import best_plan, every_plan, random_plans
from penstock.control.arena.scenarios import SCENARIOS
from penstock.control.controller import Settings
from penstock.control.guards import Hysteresis
from penstock.control.policies.drs import Drs, DrsSettings, LeastLatency
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.policy import Policy
from penstock.control.simulation import Duration, simulate
from penstock.control.topology import Topology
from penstock.dataflow import PlanError
from penstock.engines.simulated import SimulatedEngine
from penstock.measure.smoothing import MovingAverage
from penstock.plan import Plan, validated
from penstock.report.simulation_tables import league_table
from penstock.store import LatencyTarget, Store
from tests.support.applications import VIDEO_SERVICE, allocations, mean_s, plan_of, video
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine

VISITS = {"extract": 1.0, "match": 1.0, "aggregate": 1.0}


def judged(plan: Plan) -> float:
    return mean_s(VISITS, 13.0, VIDEO_SERVICE, plan.replicas)


def test_every_plan_is_tried_once() -> None:
    flow = video()
    tried = [plan.replicas for plan in every_plan(Topology.of(flow), plan_of(flow, {"extract": 1}), 22)]
    assert len(tried) == math.comb(21, 2)
    by_product = [dict(counts) for counts in allocations(list(VIDEO_SERVICE), 22)]
    assert sorted(map(repr, tried)) == sorted(map(repr, by_product))


def test_drs_comes_first_in_fewer_changes_than_the_baselines() -> None:
    flow = video()
    start = plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1})
    optimum = best_plan(every_plan(Topology.of(flow), start, 22), judged, judged)
    assert optimum.plan.replicas == {"extract": 10, "match": 11, "aggregate": 1}

    def result_of(policy: Policy) -> PolicyResult:
        clock = FakeClock()
        engine = QueueingEngine(flow, start, clock=clock, rate=lambda _: 13.0, service_per_s=VIDEO_SERVICE, pause_s=2.0)
        duration, target = Duration(windows=100, window_s=60.0), LatencyTarget(seconds=3.0)
        return run_policy(policy, engine, clock, settings, duration=duration, optimum=optimum, target=target)

    settings = Settings(mode="active", smoothing=MovingAverage(2), warm_up_s=0.0, stale_after_s=180.0)
    policies = [Threshold(), Stela(attempts=5), Ds2(), Drs(DrsSettings(goal=LeastLatency(max_slots=22)))]
    table = ranked([summarise([result_of(policy)]) for policy in policies])
    assert table[0].policy == "drs"
    assert table[0].share > 0.99 and table[0].rounds == table[0].changes == 1
    others = {result.policy: result for result in table[1:]}
    assert others["threshold"].changes > 5 and others["stela"].changes > 1
    assert all(result.rounds is None or result.rounds > 1 for result in others.values())
    assert all(result.slot_hours > 0 and result.violations > 0 for result in table)


def test_in_micro_batches_plans_differ_in_cuts_too_and_may_leave_slots_unused() -> None:
    flow = video()
    shape = Topology.of(flow)
    start = plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1}, slots=6)
    tried = list(every_plan(shape, start, 6, micro_batch=True))
    # One query each: all triples with a sum of at most 6. 'extract' and 'match' in one query: the larger count is used.
    apart = sum(a + b + c <= 6 for a, b, c in product(range(1, 7), repeat=3))
    together = sum(max(a, b) + c <= 6 for a, b, c in product(range(1, 7), repeat=3))
    assert len(tried) == len({plan.to_json() for plan in tried}) == apart + together
    for plan in tried:
        validated(flow, plan)


def test_starts_are_any_plans_within_the_slots_and_the_same_for_a_seed() -> None:
    flow = video()
    shape = Topology.of(flow)
    ones = plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1})
    drawn = list(islice(random_plans(shape, ones, 22, micro_batch=True, seed=5), 30))
    assert drawn[0] == ones
    assert drawn == list(islice(random_plans(shape, ones, 22, micro_batch=True, seed=5), 30))
    assert {plan.cuts for plan in drawn} == {frozenset({"match"}), frozenset({"match", "extract"})}
    for plan in drawn:
        validated(flow, plan)
        assert shape.slots(plan, micro_batch=True) <= 22
    assert len({plan.to_json() for plan in drawn}) > 25


def test_a_league_table_summarises_several_starts() -> None:
    def result_of(policy: str, share: float, rounds: int | None) -> PolicyResult:
        return PolicyResult(
            policy=policy, share=share, rounds=rounds, changes=3, rolled_back=0, slot_seconds=3600.0, violations=2,
            pause_s=1.0,
        )  # fmt: skip

    steady = summarise([result_of("steady", 0.98, 2), result_of("steady", 0.99, 1), result_of("steady", 1.0, 1)])
    lucky = summarise([result_of("lucky", 1.0, 1), result_of("lucky", 1.0, 1), result_of("lucky", 0.2, None)])
    assert (steady.share, steady.worst_share, steady.rounds, steady.most_rounds) == (0.99, 0.98, 1, 2)
    assert (lucky.share, lucky.worst_share, lucky.reached, lucky.starts) == (1.0, 0.2, 2, 3)
    assert [result.policy for result in ranked([lucky, steady])] == ["steady", "lucky"]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(league_table("a contest", [summarise([result_of("threshold", 1.0, 1)] * 10)]))
    text = console.export_text()
    assert "threshold" in text and "10/10" in text and "\u2026" not in text


def test_a_plan_that_drains_a_backlog_is_not_rolled_back(tmp_path: Path) -> None:
    """Minutes at a tenth of the required capacity leave a backlog that the best plan needs even longer to drain."""
    flow, behaviour = SCENARIOS["video"]()
    start = plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1})
    engine = SimulatedEngine(flow, behaviour, plan=start, seed=1)
    settings = Settings(mode="active", smoothing=MovingAverage(4), warm_up_s=30.0, stale_after_s=180.0)
    policy = Hysteresis(Drs(DrsSettings(goal=LeastLatency(max_slots=22))), gain=0.05)
    with Store(tmp_path) as store:
        sums, changes = simulate(
            policy, engine, store, settings, clock=engine.clock, duration=Duration(windows=60, window_s=30.0)
        )
        last = store.windows(last=1)[0][1].latency
    assert [row.verdict for row in changes] == ["kept"] and sums.rolled_back == 0
    assert last is not None and last.mean_s < 3.0  # the best plan has 1.7 s


@pytest.mark.long
def test_a_contest_between_drs_and_a_baseline_from_two_starts() -> None:
    settings = Settings(mode="active", smoothing=MovingAverage(3), warm_up_s=30.0, stale_after_s=180.0)
    drs = Hysteresis(Drs(DrsSettings(goal=LeastLatency(max_slots=22))), gain=0.05)
    options = ArenaOptions(
        slots=22, starts=2, duration=Duration(windows=20, window_s=60.0), seed=1, short_s=400.0, long_s=1_500.0
    )
    contest = compare_policies("video", "row-by-row", [Threshold(), drs], settings, options)
    assert contest.plans == math.comb(21, 2)
    assert contest.best == {"extract": 10, "match": 11, "aggregate": 1}  # as published
    first, second = contest.league
    assert (first.policy, first.reached, first.most_rounds) == ("drs", 2, 1) and first.worst_share > 0.9
    assert second.policy == "threshold" and second.reached < 2
    with pytest.raises(PlanError, match="No plan of 'video' within 6 slots keeps up"):
        few = ArenaOptions(slots=6, starts=1, duration=Duration(windows=1, window_s=60.0), seed=1, long_s=600.0)
        compare_policies("video", "row-by-row", [drs], settings, few)
