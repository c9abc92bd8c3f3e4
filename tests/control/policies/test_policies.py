"""The characteristic decisions of each policy, computed by hand or by brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.control.policies.drs import Drs
from penstock.control.policies.drs.problem import CORRECTION, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.policy import Change, Hold, Reason, Situation
from penstock.control.topology import Topology
from penstock.dataflow import PenstockError
from penstock.measure.smoothing import MovingAverage
from penstock.plan import default_plan
from tests.support.applications import mean_s, plan_of, video
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine
from tests.support.situations import situation_of


def test_threshold_gives_one_task_to_the_busiest() -> None:
    # 9 rows/s at 5 and 4.5 rows/s per replica use 90 % and 100 % of two replicas each.
    decision, _ = Threshold().decide(situation_of("video", (2, 2, 1), 9.0, 12), {})
    assert isinstance(decision, Change)
    assert decision.plan.replicas == {"extract": 2, "match": 3, "aggregate": 1}
    decision, _ = Threshold().decide(situation_of("video", (3, 3, 1), 6.0, 12), {})
    assert isinstance(decision, Hold) and decision.reason_code is Reason.WITHIN_TARGET


def test_threshold_takes_nothing_away() -> None:
    decision, _ = Threshold().decide(situation_of("video", (6, 6, 6), 0.5, 24), {})
    assert isinstance(decision, Hold)


@pytest.mark.parametrize("rate", [3.0, 9.0, 20.0])
def test_ds2_is_optimal_in_one_step_from_anywhere(rate: float) -> None:
    # ceil(rate / 5), ceil(rate / 4.5), 1: the required rate of each operator over the rate of a replica.
    expected = {"extract": math.ceil(rate / 5), "match": math.ceil(rate / 4.5), "aggregate": 1}
    for counts in ((1, 2, 2), (6, 6, 6), (1, 6, 2)):
        decision, _ = Ds2().decide(situation_of("video", counts, rate, 24), {})
        assert isinstance(decision, Change)
        assert decision.plan.replicas == expected


def test_ds2_does_not_oscillate_at_an_integer_number_of_replicas(tmp_path: Path) -> None:
    """9 rows/s at 4.5 rows/s per replica need exactly two; measurements vary around this value."""
    clock, flow = FakeClock(), video()
    noise = (0.0, 0.2, -0.2, 0.15, -0.1, 0.1, -0.2)
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 6, "match": 6, "aggregate": 1}, slots=24),
        clock=clock,
        rate=lambda at_s: 9.0 + noise[int(at_s // 60) % len(noise)],
        service_per_s={"extract": 5.0, "match": 4.5, "aggregate": 100.0},
    )
    rows = drive(tmp_path, engine, clock, Ds2(), windows=60, smoothing=MovingAverage(1))
    assert engine.plan.replicas == {"extract": 2, "match": 3, "aggregate": 1}
    assert len([row for row in rows if row.kind == "change"]) <= 2
    engine.set_rate("in", 8.0)  # 1.78 replicas of match: two suffice
    drive(tmp_path, engine, clock, Ds2(), windows=10, smoothing=MovingAverage(1))
    assert engine.plan.replicas["match"] == 2


@pytest.mark.parametrize("rate", [3.0, 9.0, 20.0])
def test_ds2_leaves_time_for_the_fixed_part_of_batches(rate: float) -> None:
    """A query at rho of 0.9 makes batches of ten times their fixed time; without work a query needs one slot."""
    situation = situation_of("video", (24, 24, 24), rate, 80, micro_batch=True)
    decision, _ = Ds2().decide(situation, {})
    assert isinstance(decision, Change)
    service = {"extract": 5.0, "match": 4.5, "aggregate": 100.0}
    for query in situation.topology.queries(decision.plan.cuts):
        replicas = {decision.plan.replicas[name] for name in query}
        busy = sum(rate / service[name] for name in query if name in service)
        assert replicas == {max(1, math.ceil(busy / 0.9))}


def fan(rates: dict[str, float]) -> Situation:
    """head feeds a and b, each of which feeds a sink; the sink of b gets three times as many rows."""
    flow = penstock.Dataflow("fan")
    source = flow.source("in", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    head = source.keyed("head", lambda frame: frame, keys=["n"], columns=["n", "m"])
    head.keyed("a", lambda frame: frame, keys=["m"], columns=["n"]).sink("out_a", penstock.noop())
    head.keyed("b", lambda frame: frame, keys=["m"], columns=["n"]).sink("out_b", penstock.noop())
    clock = FakeClock()
    engine = QueueingEngine(
        flow,
        default_plan(flow, slots=12, replicas={"head": 1, "a": 1, "b": 1}),
        clock=clock,
        rate=lambda _: 12.0,
        service_per_s=rates,
    )
    engine.start()
    clock.sleep(60.0)
    window = engine.observe()
    return Situation(
        now_s=clock.time(), topology=Topology.of(flow), plan=engine.plan, window=window, latest=window, max_slots=12
    )


def test_stela_prefers_the_congested_operator_that_reaches_the_most_output() -> None:
    # a serves 2 rows/s and b serves 6; both receive 12. The sink of b has the larger share of the output, 6 of 8.
    decision, _ = Stela().decide(fan({"head": 100.0, "a": 2.0, "b": 6.0}), {})
    assert isinstance(decision, Change)
    assert decision.plan.replicas == {"head": 1, "a": 1, "b": 2}
    assert decision.inputs["b.etp"] == pytest.approx(0.75)
    # b is no longer congested with twice the replicas, and a is next.
    decision, _ = Stela(attempts=2).decide(fan({"head": 100.0, "a": 2.0, "b": 6.0}), {})
    assert isinstance(decision, Change) and decision.plan.replicas == {"head": 1, "a": 2, "b": 2}
    # An upstream congested operator reaches outputs only through operators that are not congested.
    decision, _ = Stela().decide(fan({"head": 8.0, "a": 100.0, "b": 100.0}), {})
    assert isinstance(decision, Change) and decision.plan.replicas["head"] == 2
    assert decision.inputs["head.etp"] == pytest.approx(1.0)


def test_stela_detects_congestion_by_a_remaining_backlog() -> None:
    """200 rows/s arrived for ten minutes, now 20 arrive; match serves 40 rows/s, and extract sends it 100 rows/s."""
    clock, flow = FakeClock(), video()
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 1, "match": 1, "aggregate": 1}, slots=12),
        clock=clock,
        rate=lambda at_s: 200.0 if at_s < 600.0 else 20.0,
        service_per_s={"extract": 100.0, "match": 40.0, "aggregate": 1000.0},
    )
    engine.start()
    clock.sleep(620.0)
    engine.observe()
    clock.sleep(60.0)
    window = engine.observe()
    match = window.operator("match")
    assert match.input_rows_per_s == pytest.approx(100.0) and match.processed_rows_per_s == pytest.approx(40.0)
    at = Situation(
        now_s=clock.time(), topology=Topology.of(flow), plan=engine.plan, window=window, latest=window, max_slots=12
    )
    decision, _ = Stela().decide(at, {})
    assert isinstance(decision, Change) and decision.reason_code is Reason.CONGESTION
    assert decision.plan.replicas == {
        "extract": 1,
        "match": 2,
        "aggregate": 1,
    }  # extract reaches the sink through match
    # When extract has drained its backlog, no excess arrives, but match still has a backlog.
    clock.sleep(1_500.0)
    engine.observe()
    clock.sleep(60.0)
    window = engine.observe()
    match = window.operator("match")
    assert (
        match.input_rows_per_s == pytest.approx(20.0) and match.backlog_rows and match.utilisation == pytest.approx(1)
    )
    decision, _ = Stela().decide(replace(at, now_s=clock.time(), window=window, latest=window), {})
    assert isinstance(decision, Change) and decision.binding == "match"
    # When this backlog is drained, nothing is congested.
    clock.sleep(7_200.0)
    engine.observe()
    clock.sleep(60.0)
    window = engine.observe()
    decision, _ = Stela().decide(replace(at, now_s=clock.time(), window=window, latest=window), {})
    assert isinstance(decision, Hold) and decision.reason_code is Reason.WITHIN_TARGET


# ---- DRS


def test_learning_corrects_predictions(tmp_path: Path) -> None:
    """The engine is twice as slow as the model, so the fewest slots for 1 s are those for 0.5 s in the model."""
    clock, flow = FakeClock(), video()
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}),
        clock=clock,
        rate=lambda _: 12.0,
        service_per_s={"extract": 5.0, "match": 4.5, "aggregate": 1000.0},
        slower=lambda plan: 2.0,
    )
    rows = drive(
        tmp_path, engine, clock, Drs(DrsSettings(goal=FewestSlots(max_s=1.0))), windows=14, smoothing=MovingAverage(2)
    )
    from tests.support.applications import mean_s

    visits = dict.fromkeys(engine.service_per_s, 1.0)
    every = [dict(zip(visits, counts, strict=True)) for counts in product(range(1, 9), range(1, 9), [1])]
    fewest = min(
        sum(counts.values()) for counts in every if 2.0 * mean_s(visits, 12.0, engine.service_per_s, counts) <= 1.0
    )
    assert sum(engine.plan.replicas.values()) == fewest
    assert rows[-1].memory[CORRECTION] == pytest.approx(2.0, rel=0.01)
    assert rows[-1].before is not None and rows[-1].before.latency_s is not None and rows[-1].before.latency_s <= 1.0
    assert len([row for row in rows if row.kind == "change"]) == 1


def settled_s(rate: float, work: float, k: int) -> float:
    return (0.1 + 0.02 * k) / (1 - rate * work / k)


def test_micro_batch_finds_the_finite_best_of_each_query(tmp_path: Path) -> None:
    """Too many replicas increase the latency (a = 0.1 s, b = 0.02 s). Brute force over all plans of 20 slots."""
    clock, flow = FakeClock(), video()
    service = {"extract": 5.0, "match": 4.5, "aggregate": 100.0}
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 5, "match": 14, "aggregate": 1}, slots=20),
        clock=clock,
        rate=lambda _: 12.0,
        service_per_s=service,
        batch_s=0.1,
        replica_s=0.02,
    )
    drive(tmp_path, engine, clock, Drs(DrsSettings(goal=LeastLatency())), windows=8, micro_batch=True)
    plan = engine.plan
    queries = Topology.of(flow).queries(plan.cuts)
    work = [sum(1 / service[name] for name in query) for query in queries]

    def latency_s(counts: tuple[int, ...]) -> float:
        if any(12.0 * row_s >= k for row_s, k in zip(work, counts, strict=True)):
            return math.inf
        return sum(1.5 * settled_s(12.0, row_s, k) for row_s, k in zip(work, counts, strict=True))

    possible = [counts for counts in product(range(1, 19), repeat=len(queries)) if sum(counts) <= 20]
    best = min(possible, key=latency_s)
    assert tuple(max(plan.replicas[name] for name in query) for query in queries) == best
    assert sum(best) <= 20


def test_a_target_beyond_the_available_slots_reports_the_required_slots() -> None:
    policy = Drs(DrsSettings(goal=FewestSlots(max_s=0.6)))
    decision, _ = policy.decide(situation_of("video", (2, 2, 1), 20.0, 8), {})
    assert decision.needs_slots is not None and decision.needs_slots > 8
    assert decision.binding in ("extract", "match")
    if isinstance(decision, Change):
        assert decision.expected.slots <= 8


@pytest.mark.parametrize("room", [0.0, 0.05])
def test_slots_are_released_only_if_more_rows_can_be_served(room: float) -> None:
    """8.8 rows/s keep two replicas of 4.5 rows/s 98 % busy with a mean below 8 s; 9.24 rows/s are too many for them."""
    service = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
    visits = dict.fromkeys(service, 1.0)
    every = [dict(zip(service, counts, strict=True)) for counts in product(range(1, 5), range(1, 5), [1])]
    fewest = min(sum(counts.values()) for counts in every if mean_s(visits, 8.8 * (1 + room), service, counts) <= 8.0)
    goal = FewestSlots(max_s=8.0, min_s=7.0, room=room)
    decision, _ = Drs(DrsSettings(goal=goal)).decide(situation_of("video", (4, 4, 1), 8.8, 24), {})
    assert isinstance(decision, Change) and sum(decision.plan.replicas.values()) == fewest == (5 if room == 0.0 else 6)
    # The expectation refers to the current rate.
    assert decision.expected.latency_s == pytest.approx(mean_s(visits, 8.8, service, decision.plan.replicas), rel=0.02)


def test_slots_are_divided_for_the_current_rate() -> None:
    """After a low load 36 rows/s arrive; the best split for 12 rows/s would not suffice."""
    flow, clock = video(), FakeClock()
    service = {"extract": 50.0, "match": 20.0, "aggregate": 1 / 0.03}
    start = {"extract": 2, "match": 3, "aggregate": 1}
    visits = {"extract": 1.0, "match": 1.0, "aggregate": 0.6}
    assert mean_s(visits, 36.0, service, start) < 0.15 < mean_s(visits, 36.0, service, dict.fromkeys(service, 2))
    assert mean_s(visits, 12.0, service, start) > mean_s(visits, 12.0, service, dict.fromkeys(service, 2))
    engine = QueueingEngine(
        flow,
        plan_of(flow, start, slots=6),
        clock=clock,
        rate=lambda s: 12.0 if s < 60 else 36.0,
        service_per_s=service,
        selectivity={"match": 0.6},
    )
    engine.start()
    seen = []
    for _ in range(2):
        clock.sleep(60.0)
        seen.append(engine.observe())
    then, now = seen
    assert then.latency is not None
    missed = msgspec.structs.replace(then, latency=msgspec.structs.replace(then.latency, mean_s=0.3))
    at = Situation(
        now_s=now.end_s, topology=Topology.of(flow), plan=engine.plan, window=missed, latest=now, max_slots=6
    )
    decision, _ = Drs(DrsSettings(goal=FewestSlots(max_s=0.15))).decide(at, {})
    assert isinstance(decision, Hold)


@pytest.mark.parametrize("goal", [FewestSlots(max_s=2.5), LeastLatency()])
def test_the_best_plan_of_a_low_load_is_not_used_when_the_load_returns(goal: FewestSlots | LeastLatency) -> None:
    """In micro-batches, few tasks are fastest for few rows, but they could not serve eight times as many rows."""
    flow, clock = video(), FakeClock()
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 6, "match": 6, "aggregate": 2}, slots=24),
        clock=clock,
        rate=lambda s: 5.0 if s < 60 else 40.0,
        service_per_s={"extract": 20.0, "match": 20.0, "aggregate": 50.0},
        batch_s=0.1,
        replica_s=0.05,
    )
    engine.start()
    seen = []
    for _ in range(2):
        clock.sleep(60.0)
        seen.append(engine.observe())
    then, now = seen
    assert then.latency is not None and 1.25 < then.latency.mean_s < 2.5
    at = Situation(
        now_s=now.end_s,
        topology=Topology.of(flow),
        plan=engine.plan,
        window=then,
        latest=now,
        max_slots=24,
        micro_batch=True,
    )
    quiet, _ = Drs(DrsSettings(goal=goal)).decide(replace(at, latest=then), {})
    # The stages take turns, so 40 rows/s need four.
    assert isinstance(quiet, Change) and quiet.plan.replicas["match"] < 4
    decision, _ = Drs(DrsSettings(goal=goal)).decide(at, {})
    assert isinstance(decision, Hold) or (decision.plan.replicas["match"] > 4 and "extract" not in decision.plan.cuts)


def test_a_loop_that_multiplies_rows_has_no_plan() -> None:
    import msgspec

    situation = situation_of("patterns", (2, 2, 1), 9.0, 12)
    assert situation.window is not None
    operators = tuple(
        msgspec.structs.replace(operator, selectivity=1.2) if operator.operator == "detect" else operator
        for operator in situation.window.operators
    )
    window = msgspec.structs.replace(situation.window, operators=operators)
    decision, _ = Drs(DrsSettings(goal=LeastLatency())).decide(replace(situation, window=window), {})
    assert isinstance(decision, Hold) and "the loop" in decision.reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_s": 0.0},
        {"max_s": 1.0, "min_s": 2.0},
        {"max_s": 1.0, "quantile": 0.9},
        {"max_s": 1.0, "aim": 0.0},
        {"max_s": 1.0, "room": -0.1},
    ],
)
def test_invalid_goals_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PenstockError):
        FewestSlots(**wrong)
