"""Situations in which policy auto has to release slots, move them, or wait for a backlog to drain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from penstock.api.policy_options import PolicyOptions, create_policy
from penstock.control.policy import Change, Decision, Hold, PastChange, Reason, Situation
from penstock.control.recorded_load import RecordedRate
from penstock.control.topology import Topology
from tests.support.applications import plan_of
from tests.support.memory_engine import FakeClock
from tests.support.queueing_engine import QueueingEngine, mmk_latency_s
from tests.support.situations import FLOWS, situation_of

SERVICE_PER_S = FLOWS["video"][1]


def erlang_latency_s(counts: dict[str, int], rate: float) -> float:
    return sum(mmk_latency_s(rate, SERVICE_PER_S[name], k) for name, k in counts.items())


def recorded(given: Situation, rates: list[float]) -> Situation:
    """Return the situation after ten-second windows with these rates."""
    ends = [given.now_s - 10.0 * (len(rates) - 1 - at) for at in range(len(rates))]
    return replace(
        given, recorded=tuple(RecordedRate(end - 10.0, end, rate) for end, rate in zip(ends, rates, strict=True))
    )


def decide(given: Situation, latency_s: float | None) -> Decision:
    options = PolicyOptions(policy="auto", mode="active", latency_s=latency_s, max_slots=given.max_slots)
    decision, _ = create_policy(options).decide(given, {})
    return decision


def test_slots_are_released_if_fewer_would_have_held_for_long_enough() -> None:
    given = situation_of("video", (5, 5, 2), 6.0, 12)
    decision = decide(recorded(given, [6.0] * 360), 0.8)
    assert isinstance(decision, Change) and decision.reason_code is Reason.RELEASE
    counts = {name: decision.plan.replicas[name] for name in SERVICE_PER_S}
    exact_s = erlang_latency_s(counts, 6.0)
    assert exact_s <= 0.8 and sum(counts.values()) <= 8  # 2.6 replicas are busy
    assert decision.expected.slots == sum(counts.values())
    assert decision.expected.latency_s == pytest.approx(exact_s, rel=0.05)


def test_slots_are_kept_on_a_short_record_after_a_change_and_for_a_recent_peak() -> None:
    given = situation_of("video", (5, 5, 2), 6.0, 12)
    steady = recorded(given, [6.0] * 360)
    changed = PastChange(at_s=given.now_s - 100.0, old=given.plan, new=given.plan, pause_s=3.0)
    peak = recorded(given, [6.0] * 180 + [18.0] * 160 + [6.0] * 20)  # 7.8 of the 12 replicas were busy
    for held in (recorded(given, [6.0] * 20), replace(steady, changes=(changed,)), peak):
        decision = decide(held, 0.8)
        assert isinstance(decision, Hold) and decision.reason_code is Reason.WITHIN_TARGET, decision.reason


@pytest.mark.parametrize("latency_s", [3.0, None])
def test_slots_move_to_the_operator_that_lacks_them(latency_s: float | None) -> None:
    """All slots are in use. The plan is the best of all with as many slots, by Erlang's formula."""
    given = recorded(situation_of("video", (2, 5, 1), 12.0, 8), [12.0] * 60)  # `extract` serves 10 of 12 rows/s
    decision = decide(given, latency_s)
    assert isinstance(decision, Change) and decision.reason_code is Reason.REALLOCATION
    stable = [
        dict(zip(SERVICE_PER_S, counts, strict=True))
        for counts in product(range(1, 7), repeat=3)
        if sum(counts) == 8 and all(k * mu > 12.0 for k, mu in zip(counts, SERVICE_PER_S.values(), strict=True))
    ]
    assert len(stable) > 1
    best = min(stable, key=lambda counts: erlang_latency_s(counts, 12.0))
    assert {name: decision.plan.replicas[name] for name in SERVICE_PER_S} == best
    assert decision.expected.slots == 8


def after_a_burst(rows_per_s: float, *, match: int) -> Situation:
    """Return the situation at the end of a burst of 30 seconds, after an hour with 6 rows/s; `extract` is fast enough."""
    flow = FLOWS["video"][0]()
    clock = FakeClock()
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 8, "match": match, "aggregate": 1}, slots=20),
        clock=clock,
        rate=lambda at_s: rows_per_s if 3560.0 <= at_s < 3590.0 else 6.0,
        service_per_s=SERVICE_PER_S,
    )
    engine.start()
    rates = []
    for _ in range(360):
        clock.sleep(10.0)
        window = engine.observe()
        assert window.external_rows_per_s is not None
        rates.append(window.external_rows_per_s)
    given = Situation(
        now_s=clock.time(),
        topology=Topology.of(flow),
        plan=engine.plan,
        window=window,
        latest=window,
        max_slots=20,
        stale_after_s=60.0,
    )
    return recorded(given, rates)


def test_a_plan_that_suffices_keeps_its_slots_while_a_backlog_drains() -> None:
    """9 rows/s are served and 6 arrive, so the rows of the burst drain at 3 rows/s."""
    given = after_a_burst(18.0, match=2)
    assert given.latest is not None and given.latest.latency is not None
    waiting = given.backlog_rows(given.latest)
    assert waiting > 200 and given.latest.latency.mean_s > 5.0
    decision = decide(given, 5.0)
    assert isinstance(decision, Hold) and decision.reason_code is Reason.CATCHING_UP
    drain_s = float(decision.reason.split("processes them in about ")[1].split(" s")[0])
    assert drain_s == pytest.approx(waiting / 3.0, rel=0.1)


def test_a_backlog_that_drains_too_slowly_gets_slots() -> None:
    decision = decide(after_a_burst(36.0, match=2), 5.0)
    assert isinstance(decision, Change) and decision.reason_code is Reason.SHORTAGE
    assert decision.plan.replicas["match"] > 2
