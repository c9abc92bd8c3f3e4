"""The slots that policy auto expects of its plans are those that the plans use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.api.policy_options import PolicyOptions, create_policy
from penstock.control.arena.cases import WINDOW_S, Case, Cell
from penstock.control.arena.generated import SHAPES
from penstock.control.guards import Cooldown
from penstock.control.policies.auto.choices import Chooser
from penstock.control.policies.auto.learned import Learned
from penstock.control.policies.auto.learning import measured_demand, network_of, networks, present_counts
from penstock.control.policy import Change, Hold, PastChange, Reason, Situation
from penstock.control.recorded_load import RecordedRate
from penstock.plan import Plan
from tests.support.scripted import changing
from tests.support.situations import situation_of


def situation(case: Case, plan: Plan | None = None) -> Situation:
    engine = case.engine(plan or case.first_plan)
    engine.start()
    engine.advance(3 * WINDOW_S)
    window = engine.observe()
    return Situation(
        now_s=engine.clock.time(),
        topology=case.topology,
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=case.slots,
        micro_batch=case.micro_batch,
    )


@pytest.mark.parametrize("engine", ["row-by-row", "micro-batch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_counts_use_the_slots_of_the_plan(shape: str, engine: str) -> None:
    """A region that is cut inside, as in a loop, has several tasks per replica."""
    case = Case(cell=Cell(shape=shape, load="flat", engine=engine, seed=1))
    given = situation(case)
    measured = measured_demand(given, Learned())
    assert not isinstance(measured, Hold)
    network = network_of(measured, Learned(), given.plan.cuts)
    assert network.slots(present_counts(network, given.plan)) == given.slots
    for other in networks(measured, Learned(), network):
        counts = other.fewest(measured.rate_per_s) + 2.0
        counts = counts.clip(max=other.limit)
        plan = case.topology.rescaled(given.plan.replace(cuts=other.cuts), other.replicas(counts))
        assert other.slots(counts) == case.topology.slots(plan, micro_batch=case.micro_batch)


@pytest.mark.parametrize("engine", ["row-by-row", "micro-batch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_change_expects_to_meet_the_target_or_says_that_no_plan_does(shape: str, engine: str) -> None:
    case = Case(cell=Cell(shape=shape, load="flat", engine=engine, seed=1))
    given = situation(case)
    assert given.window is not None and given.window.latency is not None
    rate = given.window.external_rows_per_s or 0.0
    loads = {
        "flat": [rate] * 120,
        "rising": [rate * (0.5 + at / 240.0) for at in range(120)],
        "doubled": [rate / 2.0] * 118 + [rate] * 2,
    }
    decided = 0
    for rates in loads.values():
        recorded = tuple(
            RecordedRate(given.now_s - 10.0 * (120 - at), given.now_s - 10.0 * (119 - at), one)
            for at, one in enumerate(rates)
        )
        for relative in (0.05, 0.3, 0.8, 1.5, 4.0):
            target_s = relative * given.window.latency.mean_s
            options = PolicyOptions(
                policy="auto", mode="active", latency_s=target_s, max_slots=case.slots, micro_batch=case.micro_batch
            )
            decision, _ = create_policy(options).decide(replace(given, recorded=recorded), {})
            if isinstance(decision, Change):
                decided += 1
                expected = decision.expected
                assert expected.latency_s is not None and expected.low_s is not None and expected.high_s is not None
                assert expected.low_s <= expected.latency_s <= expected.high_s
                assert expected.latency_s <= target_s or "no plan meets the target" in decision.reason
    assert decided or shape == "skewed"  # its target is met already, or by no plan


@pytest.mark.parametrize("shape", ["loop", "single"])
def test_a_decision_names_the_slots_of_its_plan(shape: str) -> None:
    """The first plan has too few replicas, so the policy has to change it."""
    case = Case(cell=Cell(shape=shape, load="flat", engine="row-by-row", seed=1))
    few = case.topology.rescaled(case.first_plan, dict.fromkeys(case.first_plan.replicas, 1))
    options = PolicyOptions(policy="auto", mode="active", latency_s=0.001, max_slots=case.slots, micro_batch=False)
    decision, _ = create_policy(options).decide(situation(case, few), {})
    assert isinstance(decision, Change)
    assert decision.expected.slots == case.topology.slots(decision.plan, micro_batch=False) <= case.slots
    assert sum(decision.plan.replicas.values()) > sum(few.replicas.values())


def test_a_shortage_does_not_wait_for_the_cooldown() -> None:
    given = replace(situation_of("video", (1, 1, 1), 6.0, 12), started_s=0.0)
    policy = changing(extract=2)  # its reason is a shortage
    patient, _ = Cooldown(policy, seconds=1e6).decide(given, {})
    assert isinstance(patient, Hold) and patient.reason_code is Reason.COOLDOWN
    urgent, _ = Cooldown(policy, seconds=1e6, urgent=frozenset({"shortage"})).decide(given, {})
    assert isinstance(urgent, Change)
    other, _ = Cooldown(policy, seconds=1e6, urgent=frozenset({"release"})).decide(given, {})
    assert isinstance(other, Hold)


def limited(max_slots: int, latency_s: float, *, rate: float = 6.0) -> Hold | Change:
    given = situation_of("video", (2, 2, 1), rate, max_slots)
    options = PolicyOptions(policy="auto", mode="active", latency_s=latency_s, max_slots=max_slots, micro_batch=False)
    decision, _ = create_policy(options).decide(given, {})
    return decision


def test_an_infeasible_target_names_what_each_limit_would_have_to_be() -> None:
    """The slots and the target that a decision names meet each other: with either of them there is a plan."""
    hold = limited(5, 0.6)
    assert hold.needs_slots is not None and hold.needs_slots > 5
    assert f"{hold.needs_slots} slots would meet it" in hold.reason
    words = hold.reason.split("a target of ")[1]
    target_s = float(words.split(" s would be met within 5 slots")[0])
    assert target_s > 0.6
    relaxed = limited(5, target_s)
    assert isinstance(relaxed, Hold) and relaxed.reason_code is not Reason.AT_LIMIT
    assert isinstance(limited(hold.needs_slots, 0.6), Change)


def test_a_load_beyond_all_slots_cannot_be_met_with_a_higher_target() -> None:
    hold = limited(5, 2.0, rate=30.0)
    assert hold.reason_code is Reason.AT_LIMIT and "no higher target helps within 5 slots" in hold.reason
    assert hold.needs_slots is not None and hold.needs_slots >= 13  # 30/s x (1/5 + 1/4.5) s are 12.7 busy replicas


def test_the_load_is_forecast_for_the_time_that_executors_need() -> None:
    """Two changes paused for 3 s; one of them waited 45 s for an executor before."""
    given = situation(Case(cell=Cell(shape="chain", load="flat", engine="micro-batch", seed=1)))
    chooser = Chooser(target=None, slots_per_executor=1, min_executors=1)
    changes = [
        PastChange(at_s=0.0, old=given.plan, new=given.plan, pause_s=3.0, took_s=took_s) for took_s in (3.0, 48.0)
    ]
    leads_s = [chooser.lead_s(replace(given, changes=known)) for known in ((), (changes[0],), tuple(changes))]
    assert leads_s[0] == leads_s[1]  # 3 s is the estimate of the first pause too
    assert leads_s[2] - leads_s[1] == 45.0
