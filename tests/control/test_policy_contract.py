"""What the loop relies on, for every policy alike, bare and inside every guard."""

from __future__ import annotations

import copy
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from penstock.control.guards import Bounded, Cooldown, Hysteresis, PayBack
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.policy import Change, Hold, Policy, Reason, Situation
from penstock.plan import validated
from tests.support.situations import situation_of, situations

BARE: dict[str, Policy] = {
    "drs, least latency": Drs(DrsSettings(goal=LeastLatency())),
    "drs, gigk": Drs(DrsSettings(goal=LeastLatency(), queue="gigk")),
    "drs, fewest slots": Drs(DrsSettings(goal=FewestSlots(max_s=1.5))),
    "drs, quantile": Drs(DrsSettings(goal=FewestSlots(max_s=4.0, quantile=0.95))),
    "threshold": Threshold(),
    "stela": Stela(attempts=3),
    "ds2": Ds2(),
}
GUARDED: dict[str, Policy] = {
    "cooldown": Cooldown(Drs(DrsSettings(goal=LeastLatency())), seconds=60.0),
    "bounded": Bounded(Ds2(), max_slots=9),
    "hysteresis": Hysteresis(Drs(DrsSettings(goal=FewestSlots(max_s=1.5))), gain=0.1),
    "pay-back": PayBack(Stela(), within_s=600.0),
}
every = pytest.mark.parametrize("policy", (BARE | GUARDED).values(), ids=(BARE | GUARDED).keys())


@every
@given(situation=situations)
@settings(max_examples=25, deadline=None)
def test_plans_are_valid_and_within_bounds(policy: Policy, situation: Situation) -> None:
    decision, _ = policy.decide(situation, {})
    if isinstance(decision, Change):
        validated(situation.topology.flow, decision.plan)
        assert decision.plan != situation.plan
        slots = situation.topology.slots(decision.plan, micro_batch=situation.micro_batch)
        assert slots <= max(situation.max_slots, situation.slots)
        assert decision.expected.slots == slots
        assert decision.staying.slots == situation.slots
        assert decision.why and decision.inputs
    else:
        assert decision.why


@every
@given(situation=situations)
@settings(max_examples=10, deadline=None)
def test_the_same_again_gives_the_same_and_changes_nothing(policy: Policy, situation: Situation) -> None:
    memory = {"drs.correction": 1.3}
    before = copy.deepcopy((situation.plan, situation.window, memory))
    once, again = policy.decide(situation, memory), policy.decide(situation, memory)
    assert once == again
    assert (situation.plan, situation.window, memory) == before


@every
@pytest.mark.parametrize("micro_batch", [False, True])
def test_nothing_is_decided_on_stale_or_missing_metrics(policy: Policy, micro_batch: bool) -> None:
    good = situation_of("video", (1, 1, 1), 6.0, 12, micro_batch=micro_batch)
    window = good.window
    assert window is not None
    stale = replace(good, now_s=good.now_s + 61.0)
    assert _held(policy, stale) is Reason.STALE
    assert _held(policy, replace(good, window=None)) is Reason.MISSING
    assert _held(policy, replace(good, latest=None)) is Reason.MISSING
    for unknown in ("seconds_per_row", "selectivity"):
        operators = tuple(
            msgspec.structs.replace(one, **{unknown: None}) if one.operator == "match" else one
            for one in window.operators
        )
        blind = msgspec.structs.replace(window, operators=operators)
        assert _held(policy, replace(good, window=blind)) is Reason.MISSING
    gone = msgspec.structs.replace(window, operators=tuple(one for one in window.operators if one.operator != "match"))
    assert _held(policy, replace(good, window=gone)) is Reason.MISSING
    silent = msgspec.structs.replace(window, external_rows_per_s=0.0)
    assert _held(policy, replace(good, window=silent)) is Reason.IDLE


def _held(policy: Policy, situation: Situation) -> Reason:
    decision, _ = policy.decide(situation, {})
    assert isinstance(decision, Hold)
    return decision.reason


@pytest.mark.parametrize("policy", BARE.values(), ids=BARE.keys())
def test_an_overloaded_plan_is_given_more(policy: Policy) -> None:
    decision, _ = policy.decide(situation_of("video", (1, 1, 1), 9.0, 12), {})
    assert isinstance(decision, Change)
    assert decision.expected.slots > 3


@pytest.mark.parametrize("policy", BARE.values(), ids=BARE.keys())
def test_no_slot_left_is_said(policy: Policy) -> None:
    decision, _ = policy.decide(situation_of("video", (1, 1, 1), 30.0, 3), {})
    assert isinstance(decision, Hold)
    assert decision.reason is Reason.AT_LIMIT and decision.needs_slots is not None and decision.needs_slots > 3
