"""What the loop relies on, for every policy alike, bare and inside every guard."""

from __future__ import annotations

import copy
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.control.decisions import Change, Hold, Reason
from penstock.control.guards import Bounded, Cooldown, Hysteresis, MaxChangesPerHour, PayBack
from penstock.control.policies.drs import Drs
from penstock.control.policies.drs_problem import DrsSettings, FewestSlots, LeastLatency
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.shape import Shape
from penstock.control.situation import Policy, Situation
from penstock.plan import validated
from tests.support.applications import patterns, plan_of, video
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine

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
    "rate of changes": MaxChangesPerHour(Threshold(), changes=3),
    "hysteresis": Hysteresis(Drs(DrsSettings(goal=FewestSlots(max_s=1.5))), gain=0.1),
    "pay-back": PayBack(Stela(), within_s=600.0),
}
every = pytest.mark.parametrize("policy", (BARE | GUARDED).values(), ids=(BARE | GUARDED).keys())


def branches() -> penstock.Dataflow:
    """A fan-out, an operator with one global state, and a join of two streams."""
    flow = penstock.Dataflow("branches")
    source = flow.source("lines", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10.0))
    left = source.keyed("left", lambda frame: frame, keys=["n"], columns=["n"])
    right = source.global_state("right", lambda frame: frame, columns=["n"])
    flow.keyed("both", lambda frame: frame, keys=["n"], inputs=[left, right]).sink("out", penstock.noop())
    return flow


FLOWS = {
    "video": (video, {"extract": 5.0, "match": 4.5, "aggregate": 100.0}, {}),
    "patterns": (patterns, {"generate": 5.0, "detect": 4.5, "report": 9.0}, {"detect": 0.2}),
    "branches": (branches, {"left": 4.0, "right": 30.0, "both": 6.0}, {"left": 0.5}),
}


def situation_of(
    flow_name: str, counts: tuple[int, ...], rate: float, slots: int, *, micro_batch: bool = False, windows: int = 2
) -> Situation:
    make, service, selectivity = FLOWS[flow_name]
    flow = make()
    clock = FakeClock()
    given = dict(zip(service, counts, strict=True))
    if flow_name == "branches":
        given["right"] = 1
    engine = QueueingEngine(
        flow,
        plan_of(flow, given, slots=slots),
        clock=clock,
        rate=lambda _: rate,
        service_per_s=service,
        selectivity=selectivity,
        batch_s=0.1 if micro_batch else None,
        replica_s=0.02,
    )
    engine.start()
    for _ in range(windows):
        clock.sleep(60.0)
        window = engine.observe()
    return Situation(
        now_s=clock.time(),
        shape=Shape.of(flow),
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=slots,
        micro_batch=micro_batch,
        stale_after_s=60.0,
    )


situations = st.builds(
    situation_of,
    st.sampled_from(sorted(FLOWS)),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.floats(0.5, 40.0),
    st.integers(3, 24),
    micro_batch=st.booleans(),
)


@every
@given(situation=situations)
@settings(max_examples=25, deadline=None)
def test_plans_are_valid_and_within_bounds(policy: Policy, situation: Situation) -> None:
    decision, _ = policy.decide(situation, {})
    if isinstance(decision, Change):
        validated(situation.shape.flow, decision.plan)
        assert decision.plan != situation.plan
        slots = situation.shape.slots(decision.plan, micro_batch=situation.micro_batch)
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
