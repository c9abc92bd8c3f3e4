"""The contract suite of policies and guards: every policy of the catalogue passes it, alone and inside every guard."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from penstock.control import guards
from penstock.control.guards import Bounded, Cooldown, Hysteresis, PayBack
from penstock.control.policies.catalogue import POLICIES, PolicyParameters, build_policy, guarded_policy
from penstock.control.policy import Change, Hold, Policy, Reason, Situation
from penstock.control.quiet_hours import Quiet, QuietHours
from penstock.models.curve import Curve, CurvePoint
from penstock.plan import validated
from tests.support.profiles import video_profile
from tests.support.situations import FLOWS, situation_of, situations


def with_profile(**options: Any) -> PolicyParameters:
    """Return options with a profile, and with curves that contain the rates of the situations."""
    curves = {
        operator: Curve(threads=(1,), points=(CurvePoint(rows_per_s=rate, cpu=90.0, memory=10.0),))
        for _, service, _ in FLOWS.values()
        for operator, rate in service.items()
    }
    return PolicyParameters(profile=video_profile(), curves=curves, **options)


OPTIONS = {
    "slot limit": with_profile(max_slots=24),
    "gigk": with_profile(max_slots=24, queue="gigk"),
    "latency": with_profile(latency_s=1.5),
    "quantile": with_profile(latency_s=4.0, quantile=0.95),
    "executors": with_profile(latency_s=1.5, executors=(1, 24)),
    "study": with_profile(latency_s=1.5, executors=(1, 24), capacity=tuple(2.0 * m for m in range(1, 25))),
}
GUARDS: dict[str, Callable[[Policy], Policy]] = {
    "bounded": lambda policy: Bounded(policy, max_slots=9),
    "cooldown": lambda policy: Cooldown(policy, seconds=60.0),
    "hysteresis": lambda policy: Hysteresis(policy, gain=0.1),
    "quiet": lambda policy: Quiet(policy, hours=QuietHours.parse("00:30-00:20"), zone=UTC),
    "pay-back": lambda policy: PayBack(policy, within_s=600.0),
}


def policies(*, elastic: bool = True) -> dict[str, Policy]:
    """Every policy with every set of options that it accepts."""
    return {
        f"{name}, {label}": build_policy(name, options)
        for name, entry in POLICIES.items()
        for label, options in OPTIONS.items()
        if options.executors is not None or not entry.sets_executors
        if elastic or options.executors is None
    }


def guarded() -> dict[str, Policy]:
    """Every policy inside every guard, and inside the guards of a run."""
    executors = OPTIONS["executors"]
    each = {
        f"{guard}({name})": make(build_policy(name, executors)) for guard, make in GUARDS.items() for name in POLICIES
    }
    return each | {f"run({name})": guarded_policy(name, executors, cooldown_s=60.0) for name in POLICIES}


ALL = policies() | guarded()
WITHOUT_EXECUTORS = policies(elastic=False)
GUARDED_WITHOUT_EXECUTORS = {
    f"{guard}({name})": make(policy) for guard, make in GUARDS.items() for name, policy in WITHOUT_EXECUTORS.items()
}
every = pytest.mark.parametrize("policy", ALL.values(), ids=ALL.keys())
every_without_executors = pytest.mark.parametrize("policy", WITHOUT_EXECUTORS.values(), ids=WITHOUT_EXECUTORS.keys())


def test_every_guard_is_in_the_suite() -> None:
    defined = {name for name, value in vars(guards).items() if hasattr(value, "decide") and name != "Policy"}
    tested = {type(make(build_policy("ds2", PolicyParameters()))).__name__ for make in GUARDS.values()}
    assert defined == tested


@every
@given(situation=situations)
@settings(max_examples=12, deadline=None)
def test_plans_are_valid_and_within_bounds(policy: Policy, situation: Situation) -> None:
    decision, _ = policy.decide(situation, {})
    assert decision.reason.endswith(".") and decision.reason[0].isupper(), decision.reason  # one sentence
    if isinstance(decision, Change):
        validated(situation.topology.flow, decision.plan)
        assert decision.plan != situation.plan
        slots = situation.topology.slots(decision.plan, micro_batch=situation.micro_batch)
        assert slots <= max(situation.max_slots, situation.slots)
        assert decision.expected.slots == slots
        assert decision.staying.slots == situation.slots
        assert decision.inputs


@every
@given(situation=situations)
@settings(max_examples=6, deadline=None)
def test_decisions_are_deterministic_and_change_no_input(policy: Policy, situation: Situation) -> None:
    memory = {"drs.correction": 1.3, "other": 1.0}
    before = copy.deepcopy((situation.plan, situation.window, memory))
    once, again = policy.decide(situation, memory), policy.decide(situation, memory)
    assert once == again
    assert once[1]["other"] == 1.0
    assert (situation.plan, situation.window, memory) == before


@every
@pytest.mark.parametrize("micro_batch", [False, True])
def test_nothing_is_decided_on_stale_or_missing_metrics(policy: Policy, micro_batch: bool) -> None:
    good = situation_of("video", (1, 1, 1), 6.0, 12, micro_batch=micro_batch)
    assert _held(policy, replace(good, now_s=good.now_s + 61.0)) is Reason.STALE
    assert _held(policy, replace(good, window=None)) is Reason.MISSING
    assert _held(policy, replace(good, latest=None)) is Reason.MISSING


@pytest.mark.parametrize("micro_batch", [False, True])
@pytest.mark.parametrize(
    "policy",
    [*WITHOUT_EXECUTORS.values(), *GUARDED_WITHOUT_EXECUTORS.values()],
    ids=[*WITHOUT_EXECUTORS, *GUARDED_WITHOUT_EXECUTORS],
)
def test_nothing_is_decided_on_unknown_costs_or_without_input(policy: Policy, micro_batch: bool) -> None:
    good = situation_of("video", (1, 1, 1), 6.0, 12, micro_batch=micro_batch)
    window = good.window
    assert window is not None
    for unknown in ("seconds_per_row", "selectivity"):
        operators = tuple(
            msgspec.structs.replace(operator, **{unknown: None}) if operator.operator == "match" else operator
            for operator in window.operators
        )
        blind = msgspec.structs.replace(window, operators=operators)
        assert _held(policy, replace(good, window=blind)) is Reason.MISSING
    gone = msgspec.structs.replace(
        window, operators=tuple(operator for operator in window.operators if operator.operator != "match")
    )
    assert _held(policy, replace(good, window=gone)) is Reason.MISSING
    silent = msgspec.structs.replace(window, external_rows_per_s=0.0)
    assert _held(policy, replace(good, window=silent)) is Reason.IDLE


def _held(policy: Policy, situation: Situation) -> Reason:
    decision, _ = policy.decide(situation, {})
    assert isinstance(decision, Hold)
    return decision.reason_code


@every_without_executors
def test_an_overloaded_plan_gets_more_slots(policy: Policy) -> None:
    decision, _ = policy.decide(situation_of("video", (1, 1, 1), 9.0, 12), {})
    assert isinstance(decision, Change)
    assert decision.expected.slots > 3


@every_without_executors
def test_missing_slots_are_reported(policy: Policy) -> None:
    decision, _ = policy.decide(situation_of("video", (1, 1, 1), 30.0, 3), {})
    assert isinstance(decision, Hold)
    assert decision.reason_code is Reason.AT_LIMIT and decision.needs_slots is not None and decision.needs_slots > 3
