"""The policy on situations: metrics from windows, vetoes, restarts, the verdict in the record, and moved state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.control.controller import Controller, Settings
from penstock.control.demand import Demand, demand_of
from penstock.control.guards import Bounded, Cooldown
from penstock.control.loop import Loop
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.elastic import Elastic
from penstock.control.policies.organic import Organic
from penstock.control.policies.organic.profile import processed_rows_per_s, profiles_of
from penstock.control.policy import Change, Hold, Memory, Reason, Situation
from penstock.control.region_configuration import configurations_of, plan_with
from penstock.control.topology import Topology
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.plan import Plan, default_plan
from penstock.store import Store
from tests.support.situations import situation_of


def three_operators() -> penstock.Dataflow:
    """A keyed region of three operators."""
    flow = penstock.Dataflow("three")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    keyed = rows.keyed("a", lambda frame: frame, keys=["n"], columns=["n"])
    keyed.stateless("b", lambda frame: frame, columns=["n"]).stateless("c", lambda frame: frame, columns=["n"]).sink(
        "out", penstock.noop()
    )
    return flow


def situation(
    plan: Plan, busy: dict[str, float], *, rate: float, at_s: float, slots: int = 8, micro_batch: bool = False
) -> Situation:
    """Return a situation in which `a`, `b` and `c` have these utilisations and process `rate` of 1000 rows/s."""
    operators = tuple(
        OperatorWindow.knowing(
            name,
            "out",
            replicas=plan.replicas["a"],
            selectivity=1.0,
            seconds_per_row=0.001,
            utilisation=busy[name],
            processed_rows_per_s=rate,
            input_rows_per_s=rate,
            rows_in=int(rate * 30),
            state_rows=600 if name == "a" else None,
            state_bytes=6000 if name == "a" else None,
        )
        for name in ("a", "b", "c")
    )
    query = PipelineWindow(
        pipeline="out",
        operators=("rows", "a", "b", "c", "out"),
        batches=10,
        rows_in=int(rate * 30),
        batch_s=2.4,
        batch_max_s=3.0,
        phases_s={},
        busy_s=None,
        backlog_rows=0,
    )
    window = Window(
        start_s=at_s - 30.0,
        end_s=at_s,
        generation=1,
        external_rows_per_s=1000.0,
        latency=None,
        pipelines=(query,),
        operators=operators,
    )
    return Situation(
        now_s=at_s,
        topology=Topology.of(three_operators()),
        plan=plan,
        window=window,
        latest=window,
        max_slots=slots,
        micro_batch=micro_batch,
    )


BUSY = {"a": 0.3, "b": 0.3, "c": 0.4}
STRICT = Organic(AdaptationParameters(strict=True))


def first_plan(replicas: int = 1) -> Plan:
    return default_plan(three_operators(), slots=8, replicas={"a": replicas})


def test_the_decision_reports_the_state_that_moves() -> None:
    plan = first_plan()
    split, _ = STRICT.decide(situation(plan, BUSY, rate=100.0, at_s=100.0), {})
    assert isinstance(split, Change) and split.plan.cuts == {"b"}
    assert (split.inputs["moved_state_rows"], split.inputs["moved_state_bytes"]) == (0.0, 0.0)
    policy = Organic(AdaptationParameters(strict=True, split_gain=9.0))
    expanded, memory = policy.decide(situation(first_plan(2), BUSY, rate=100.0, at_s=100.0), {})
    assert isinstance(expanded, Change) and expanded.plan.replicas == {"a": 3}
    # Consistent hashing moves the keys of the new replica: a third of 600 rows.
    assert expanded.inputs["moved_state_rows"] == pytest.approx(200.0)
    assert "200 rows (2,000 bytes)" in expanded.reason
    kept, _ = policy.decide(situation(expanded.plan, BUSY, rate=140.0, at_s=140.0), memory)
    assert isinstance(kept, Hold) and kept.verdict == "kept" and kept.reason_code is Reason.ADAPTED


def test_on_spark_all_state_of_a_rescaled_region_moves() -> None:
    policy = Organic(AdaptationParameters(strict=True, split_gain=9.0))
    decision, _ = policy.decide(situation(first_plan(2), BUSY, rate=100.0, at_s=100.0, micro_batch=True), {})
    assert isinstance(decision, Change) and decision.inputs["moved_state_bytes"] == 6000.0


def test_a_period_must_have_passed_before_the_next_decision() -> None:
    calm = dict.fromkeys("abc", 0.1)
    _, memory = STRICT.decide(situation(first_plan(), calm, rate=100.0, at_s=100.0), {})
    early, same = STRICT.decide(situation(first_plan(), BUSY, rate=100.0, at_s=129.0), memory)
    assert isinstance(early, Hold) and early.reason_code is Reason.SETTLING and same == memory
    later, _ = STRICT.decide(situation(first_plan(), BUSY, rate=100.0, at_s=130.0), memory)
    assert isinstance(later, Change)


def test_a_decision_that_is_not_applied_is_made_again() -> None:
    """A guard vetoed it, or the mode is recommend."""
    plan = first_plan()
    once, memory = STRICT.decide(situation(plan, BUSY, rate=100.0, at_s=100.0), {})
    again, _ = STRICT.decide(situation(plan, BUSY, rate=100.0, at_s=110.0), memory)
    assert isinstance(once, Change) and isinstance(again, Change) and again.plan == once.plan


def test_a_vetoed_revert_is_made_again_and_blacklists_once() -> None:
    change, memory = STRICT.decide(situation(first_plan(), BUSY, rate=100.0, at_s=100.0), {})
    assert isinstance(change, Change)
    retried, after = STRICT.decide(situation(change.plan, BUSY, rate=100.0, at_s=140.0), memory)
    assert isinstance(retried, Change) and retried.verdict == "rolled back" and retried.plan.replicas == {"a": 2}
    again, _ = STRICT.decide(situation(change.plan, BUSY, rate=100.0, at_s=145.0), after)
    assert again == replace(retried, inputs=again.inputs)


def test_a_plan_of_somebody_else_ends_the_adaptation_and_keeps_the_blacklists() -> None:
    policy, plan = STRICT, first_plan()
    memory: Memory = {}
    change, memory = policy.decide(situation(plan, BUSY, rate=100.0, at_s=100.0), memory)
    assert isinstance(change, Change)
    retried, memory = policy.decide(situation(change.plan, BUSY, rate=100.0, at_s=140.0), memory)
    assert isinstance(retried, Change)
    reverted, memory = policy.decide(situation(retried.plan, BUSY, rate=100.0, at_s=180.0), memory)
    assert isinstance(reverted, Change) and reverted.reason_code is Reason.ROLL_BACK and reverted.plan == plan
    restarted = msgspec.json.decode(msgspec.json.encode(dict(memory)))  # the store keeps JSON
    held, _ = policy.decide(situation(plan, BUSY, rate=100.0, at_s=220.0), restarted)
    assert isinstance(held, Hold) and "blacklisted" in held.reason
    foreign, memory = policy.decide(situation(first_plan(4), BUSY, rate=100.0, at_s=220.0), memory)
    assert isinstance(foreign, Change)  # blacklists name configurations with one replica
    back, _ = policy.decide(situation(plan, BUSY, rate=100.0, at_s=260.0), memory)
    assert isinstance(back, Hold) and "blacklisted" in back.reason


def test_slots_are_replicas_times_pipelines() -> None:
    flow = three_operators()
    topology = Topology.of(flow)
    plan = first_plan(3).replace(cuts=frozenset({"a", "b"}))
    assert topology.slots(plan, micro_batch=False) == topology.slots(plan, micro_batch=True) == 9
    decision, _ = STRICT.decide(situation(plan, dict.fromkeys("abc", 0.9), rate=100.0, at_s=100.0, slots=11), {})
    assert isinstance(decision, Hold)
    assert (decision.reason_code, decision.needs_slots) == (Reason.AT_LIMIT, 12)


def test_configurations_and_plans_correspond() -> None:
    topology = Topology.of(three_operators())
    plan = first_plan(3).replace(cuts=frozenset({"a"}))
    for micro_batch in (False, True):
        known = configurations_of(topology, plan, micro_batch=micro_batch)
        assert plan_with(topology, first_plan(), known, micro_batch=micro_batch) == plan


def test_costs_in_micro_batches_are_shares_of_the_batch_time() -> None:
    """10 batches of 2.4 s in 30 s: a batch is in progress for 0.8 of the time."""
    shares = {"a": 0.2, "b": 0.1, "c": 0.3}
    now = situation(first_plan(), shares, rate=100.0, at_s=100.0, micro_batch=True)
    demand = demand_of(now)
    assert isinstance(demand, Demand)
    (pipeline,) = profiles_of(now, demand)["a"].pipelines
    assert pipeline.utilisation == pytest.approx(0.6)  # the fixed time of batches is not utilisation
    costs = {step.operator: step.cost for step in pipeline.steps}
    assert costs == pytest.approx({"a": 0.25, "b": 0.125, "c": 0.375, "out": 0.0})


@pytest.mark.parametrize(("backlog", "utilisation"), [(2_000, 0.8), (299, 0.6)])
def test_the_fixed_time_of_batches_counts_while_rows_wait(backlog: int, utilisation: float) -> None:
    """10 batches of 300 rows and 2.4 s in 30 s. If more rows wait than a batch takes, no batch is idle time."""
    shares = {"a": 0.2, "b": 0.1, "c": 0.3}
    now = situation(first_plan(), shares, rate=100.0, at_s=100.0, micro_batch=True)
    assert now.window is not None
    query = msgspec.structs.replace(now.window.pipelines[0], backlog_rows=backlog)
    now = replace(now, window=msgspec.structs.replace(now.window, pipelines=(query,)))
    demand = demand_of(now)
    assert isinstance(demand, Demand)
    (pipeline,) = profiles_of(now, demand)["a"].pipelines
    assert pipeline.utilisation == pytest.approx(utilisation)


def test_the_throughput_of_whole_batches() -> None:
    """A batch of 400 rows ended in this window of 1 s; it took 8 s: 50 rows/s."""
    operator = OperatorWindow.knowing(
        "a", "out", replicas=2, seconds_per_row=0.03, utilisation=0.75, processed_rows_per_s=400.0, utilisation_s=8.0
    )
    assert processed_rows_per_s(operator) == pytest.approx(50.0)
    assert processed_rows_per_s(msgspec.structs.replace(operator, utilisation_s=None)) == 400.0


def test_the_slowest_pipeline_is_the_throughput_of_a_region() -> None:
    now = situation(first_plan().replace(cuts=frozenset({"a"})), BUSY, rate=100.0, at_s=100.0)
    assert now.window is not None
    slow = tuple(
        msgspec.structs.replace(operator, processed_rows_per_s=60.0) if operator.operator == "b" else operator
        for operator in now.window.operators
    )
    now = replace(now, window=msgspec.structs.replace(now.window, operators=slow))
    demand = demand_of(now)
    assert isinstance(demand, Demand)
    assert profiles_of(now, demand)["a"].rows_per_s == 60.0


@pytest.mark.parametrize(("busy", "rows_per_s"), [(0.5, 100.0), (0.9, 90.0 / 0.9), (0.95, 90.0 / 0.95)])
def test_a_query_behind_a_cut_that_is_not_busy_does_not_limit_its_region(busy: float, rows_per_s: float) -> None:
    """After a change, 'b' and 'c' were idle until the first batch of 'a' ended, and processed 90 rows/s since."""
    now = situation(
        first_plan().replace(cuts=frozenset({"a"})),
        {"a": 1.0, "b": busy / 2, "c": busy / 2},
        rate=100.0,
        at_s=100.0,
        micro_batch=True,
    )
    assert now.window is not None
    late = tuple(
        msgspec.structs.replace(operator, processed_rows_per_s=90.0) if operator.operator in "bc" else operator
        for operator in now.window.operators
    )
    now = replace(now, window=msgspec.structs.replace(now.window, operators=late))
    demand = demand_of(now)
    assert isinstance(demand, Demand)
    assert profiles_of(now, demand)["a"].rows_per_s == pytest.approx(rows_per_s)


def test_the_completed_rows_are_those_of_the_last_operator_with_a_cost() -> None:
    """The rows of a sink count when a batch ends, and a batch of 8 s ended in a window of 1 s."""
    now = situation(first_plan(), BUSY, rate=100.0, at_s=100.0, micro_batch=True)
    assert now.window is not None
    sink = OperatorWindow.knowing("out", "out", replicas=1, processed_rows_per_s=800.0)
    now = replace(now, window=msgspec.structs.replace(now.window, operators=(*now.window.operators, sink)))
    demand = demand_of(now)
    assert isinstance(demand, Demand)
    assert profiles_of(now, demand)["a"].completed_per_s == pytest.approx(100.0)


def test_the_controller_records_the_verdict_of_the_policy(tmp_path: Path) -> None:
    """A simulated run: the region is split or expanded until it processes 350 rows/s; each change has a verdict."""
    flow = three_operators()
    cost = OperatorBehaviour(service_s=Fixed(value=0.004))
    behaviour = Behaviour(
        operators={"a": cost, "b": cost, "c": cost}, sources={"rows": SourceBehaviour(rates=((0.0, 350.0),))}
    )
    engine = SimulatedEngine(flow, behaviour, plan=first_plan())
    policy = Cooldown(Bounded(Organic(), max_slots=8), seconds=0.0)
    with Store(tmp_path) as store:
        controller = Controller(
            policy, Settings(mode="active", smoothing=MovingAverage(3), warm_up_s=5.0), engine, store
        )
        loop = Loop(engine=engine, store=store, controller=controller, clock=engine.clock)
        engine.start()
        for _ in range(80):
            engine.advance(10.0)
            loop.turn()
        changes = [row for _, row in store.applied_changes()]
    assert changes and {row.verdict for row in changes[:-1]} <= {"kept", "rolled back"}
    assert any(row.verdict == "kept" for row in changes)
    assert Topology.of(flow).slots(engine.plan, micro_batch=False) <= 8


def test_a_release_names_the_regions_that_stay_under_utilised() -> None:
    calm, memory = dict.fromkeys("abc", 0.05), {}
    decisions = []
    for number in range(3):
        at_s = 100.0 + 30.0 * number
        decision, memory = Organic().decide(situation(first_plan(3), calm, rate=1000.0, at_s=at_s), memory)
        decisions.append(decision)
    assert [isinstance(decision, Change) for decision in decisions] == [False, False, True]
    release = decisions[-1]
    assert isinstance(release, Change) and release.reason_code is Reason.RELEASE
    assert release.reason.startswith("Regions stay under-utilised ('a' 15% busy): a: 3 -> 1 replicas.")
    assert release.plan == first_plan(1)


def test_a_redistribution_says_that_the_slots_are_the_limit() -> None:
    """Three pipelines use all three slots, and two of them have hardly any work."""
    plan = first_plan().replace(cuts=frozenset({"a", "b"}))
    now = situation(plan, {"a": 1.0, "b": 0.1, "c": 0.1}, rate=100.0, at_s=100.0, slots=3)
    assert now.window is not None
    seconds = {"a": 0.010, "b": 0.001, "c": 0.001}
    operators = tuple(
        msgspec.structs.replace(operator, seconds_per_row=seconds[operator.operator])
        for operator in now.window.operators
    )
    now = replace(now, window=msgspec.structs.replace(now.window, operators=operators))
    decision, _ = Organic().decide(now, {})
    assert isinstance(decision, Change) and decision.reason_code is Reason.REALLOCATION
    assert decision.reason.startswith(
        "Bottlenecks are limited by the slots, which are distributed anew: no cut after a"
    )
    assert (decision.plan.cuts, decision.plan.replicas) == (frozenset(), {"a": 3})
    strict, _ = STRICT.decide(now, {})
    assert isinstance(strict, Hold) and strict.reason_code is Reason.AT_LIMIT


def test_stateless_regions_are_expanded_unless_strict() -> None:
    overloaded = situation_of("video", (1, 4, 1), 9.0, 12)
    extended, _ = Organic().decide(overloaded, {})
    strict, _ = STRICT.decide(overloaded, {})
    assert isinstance(extended, Change) and extended.plan.replicas["extract"] > 1
    assert not isinstance(strict, Change) or strict.plan.replicas["extract"] == 1


def test_on_spark_regions_that_take_turns_in_one_query_are_separated_first() -> None:
    decision, _ = Organic().decide(situation_of("video", (1, 4, 1), 9.0, 12, micro_batch=True), {})
    assert isinstance(decision, Change) and "extract" in decision.plan.cuts


def test_a_cut_that_two_regions_share_belongs_to_both_after_the_change() -> None:
    """The policy recognises its own change, although it concerns the configuration of another region as well."""
    before = situation_of("video", (1, 4, 1), 9.0, 12, micro_batch=True)
    change, memory = Organic().decide(before, {})
    assert isinstance(change, Change) and "extract" in change.plan.cuts - before.plan.cuts
    assert before.window is not None and before.latest is not None
    later = replace(
        before,
        plan=change.plan,
        now_s=before.now_s + 60.0,
        window=msgspec.structs.replace(before.window, end_s=before.window.end_s + 60.0),
        latest=msgspec.structs.replace(before.latest, end_s=before.latest.end_s + 60.0),
    )
    decision, _ = Organic().decide(later, memory)  # nothing has improved
    assert decision.verdict == "rolled back"


@pytest.mark.parametrize("micro_batch", [False, True])
def test_executors_provide_a_slot_for_every_replica_of_every_pipeline(micro_batch: bool) -> None:
    """3 pipelines with 3 replicas use 9 slots; with one more replica they use 12: 6 executors with 2 slots."""
    plan = first_plan(3).replace(cuts=frozenset({"a", "b"}), slots=10)
    policy = Elastic(STRICT, slots_per_executor=2, max_executors=8)
    busy = dict.fromkeys("abc", 0.9)
    change, _ = policy.decide(situation(plan, busy, rate=100.0, at_s=100.0, slots=16, micro_batch=micro_batch), {})
    assert isinstance(change, Change) and change.plan.replicas == {"a": 4} and change.plan.cuts == {"a", "b"}
    assert change.plan.slots == 12 and change.expected.slots == 12


def test_blacklists_survive_a_restart_of_the_controller(tmp_path: Path) -> None:
    """A source of 230 rows/s keeps one replica 92 % busy. Two replicas cannot process more rows, so they are reverted."""
    flow = three_operators()
    cost = OperatorBehaviour(service_s=Fixed(value=0.004))
    behaviour = Behaviour(
        operators={"a": cost}, sources={"rows": SourceBehaviour(rates=((0.0, 230.0),), interarrival=Fixed(value=1.0))}
    )
    engine = SimulatedEngine(flow, behaviour, plan=first_plan())
    settings = Settings(mode="active", smoothing=MovingAverage(3), warm_up_s=5.0)

    def turns(store: Store, count: int) -> None:
        loop = Loop(
            engine=engine, store=store, controller=Controller(STRICT, settings, engine, store), clock=engine.clock
        )
        for _ in range(count):
            engine.advance(10.0)
            loop.turn()

    engine.start()
    with Store(tmp_path) as store:
        turns(store, 30)
        before = [row for _, row in store.applied_changes()]
    with Store(tmp_path) as store:
        turns(store, 60)
        after = [row for _, row in store.applied_changes()]
    first = before[0]
    assert first.new is not None and (first.new.replicas["a"], first.verdict) == (2, "rolled back")
    assert engine.plan == first_plan()
    assert after == before
