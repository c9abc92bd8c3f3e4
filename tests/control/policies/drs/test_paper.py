"""DRS, section V, on models alone. Expected values come from brute force over textbook formulas."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.control.guards import Cooldown
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policy import Change, Situation
from penstock.control.topology import Topology
from penstock.measure.smoothing import MovingAverage
from tests.support.applications import (
    PATTERNS_SELECTIVITY,
    PATTERNS_SERVICE,
    VIDEO_SERVICE,
    allocations,
    mean_s,
    patterns,
    plan_of,
    video,
)
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.queue_simulation import station_latencies_s
from tests.support.queueing_engine import QueueingEngine

VIDEO_VISITS = {"extract": 1.0, "match": 1.0, "aggregate": 1.0}
PATTERNS_VISITS = {"generate": 1.0, "detect": 1.25, "report": 0.25}  # 1 / (1 - 0.2), and a fifth of this value
APPLICATIONS = {
    "video": (video, 13.0, VIDEO_SERVICE, {}, VIDEO_VISITS, (10, 11, 1)),
    "patterns": (patterns, 320.0, PATTERNS_SERVICE, PATTERNS_SELECTIVITY, PATTERNS_VISITS, (6, 13, 3)),
}
Application = tuple[Callable[[], penstock.Dataflow], float, dict[str, float], dict[str, float], dict[str, float], tuple]
each = pytest.mark.parametrize("application", APPLICATIONS.values(), ids=APPLICATIONS.keys())


def engine_of(application: Application, counts: dict[str, int], clock: FakeClock) -> QueueingEngine:
    make, external, service, selectivity, _, _ = application
    flow = make()
    return QueueingEngine(
        flow,
        plan_of(flow, counts),
        clock=clock,
        rate=lambda _: external,
        service_per_s=service,
        selectivity=selectivity,
        pause_s=3.0,
    )


@each
def test_from_every_start_one_change_leads_to_the_best_of_all_allocations(application: Application) -> None:
    """K = 22: the service times were chosen so that the best plan is the one that the paper's DRS recommended."""
    _, external, service, _, visits, published = application
    every = list(allocations(list(service), 22))
    best = min(every, key=lambda counts: mean_s(visits, external, service, counts))
    assert tuple(best.values()) == published
    policy = Drs(DrsSettings(goal=LeastLatency(max_slots=22)))
    shape = Topology.of(application[0]())
    for start in every:
        clock = FakeClock()
        engine = engine_of(application, start, clock)
        engine.start()
        clock.sleep(60.0)
        window = engine.observe()
        situation = Situation(
            now_s=clock.time(), topology=shape, plan=engine.plan, window=window, latest=window, max_slots=22
        )
        decision, memory = policy.decide(situation, {})
        if start == best:
            assert not isinstance(decision, Change)
            continue
        assert isinstance(decision, Change), start
        assert decision.plan.replicas == best, start
        engine.apply(decision.plan)
        clock.sleep(60.0)
        window = engine.observe()
        situation = Situation(
            now_s=clock.time(), topology=shape, plan=engine.plan, window=window, latest=window, max_slots=22
        )
        assert not isinstance(policy.decide(situation, memory)[0], Change)


@each
@pytest.mark.parametrize("start", [(8, 12, 2), (11, 9, 2), (7, 13, 2), (18, 2, 2), (1, 1, 20)])
def test_the_loop_changes_once_and_never_again(application: Application, start: tuple, tmp_path: Path) -> None:
    _, external, service, _, visits, _ = application
    best = min(allocations(list(service), 22), key=lambda counts: mean_s(visits, external, service, counts))
    clock = FakeClock()
    engine = engine_of(application, dict(zip(service, start, strict=True)), clock)
    policy = Cooldown(Drs(DrsSettings(goal=LeastLatency(max_slots=22))), seconds=14 * 60.0)
    rows = drive(tmp_path, engine, clock, policy, windows=300, smoothing=MovingAverage(3))
    changes = [row for row in rows if row.kind == "change"]
    assert [row.applied for row in changes] == ["ok"]
    assert engine.plan.replicas == best
    (change,) = changes
    assert change.verdict == "kept"
    assert change.expected is not None and change.observed is not None
    if sum(start) == 22 and mean_s(visits, external, service, change.old.replicas) < 1e9:
        assert change.observed.latency_s == pytest.approx(change.expected.latency_s, rel=0.05)


# ---- figure 9: T_max 1000 ms, T_min 450 ms, T_ra = w minutes, rates of 6, 12 and 18 frames/s

STEPS_SERVICE = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
T_MAX, T_MIN = 1.0, 0.45


def steps(*legs: tuple[float, float]) -> Callable[[float], float]:
    """Return (first minute, rows/s) of each step."""
    return lambda at_s: next(rate for minute, rate in reversed(legs) if at_s >= 60 * minute - 1e-6)


LONG = steps((0, 6.0), (6, 12.0), (21, 6.0), (34, 18.0))
SHORT = steps((0, 6.0), (6, 12.0), (9, 6.0))


def stepped(rate: Callable[[float], float], w: int, at: Path, minutes: int) -> list[tuple[int, str, int]]:
    """Return (minute, reason, slots) of the changes."""
    clock = FakeClock()
    flow = video()
    engine = QueueingEngine(
        flow,
        plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}),
        clock=clock,
        rate=rate,
        service_per_s=STEPS_SERVICE,
    )
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=T_MAX, min_s=T_MIN))), seconds=60.0 * w)
    rows = drive(at, engine, clock, policy, windows=minutes, smoothing=MovingAverage(w), load_change=0.2)
    return [
        (round((row.at_s - 1000.0) / 60), row.reason_code, sum(row.new.replicas.values())) for row in rows if row.new
    ]


def steady_s(rate: float, counts: tuple[int, ...]) -> float:
    return mean_s(VIDEO_VISITS, rate, STEPS_SERVICE, dict(zip(STEPS_SERVICE, counts, strict=True)))


def fewest(rate: float) -> int:
    """Return the fewest slots by brute force."""
    every = product(range(1, 12), range(1, 12), range(1, 3))
    return min(sum(counts) for counts in every if steady_s(rate, counts) <= T_MAX)


@pytest.mark.parametrize("w", [3, 6])
def test_slots_are_added_and_released_at_the_right_times(w: int, tmp_path: Path) -> None:
    # The moving averages over w minutes determine the time of each change.
    before, after = steady_s(6.0, (3, 3, 1)), steady_s(12.0, (3, 3, 1))
    # Either the average latency exceeds the target, or the average rate exceeds the capacity of the slots.
    late = next(
        n
        for n in range(1, w + 1)
        if (n * after + (w - n) * before) / w > T_MAX and steady_s((n * 12 + (w - n) * 6) / w, (3, 3, 1)) > T_MAX
    )
    first, second, third = stepped(LONG, w, tmp_path, 40)[:3]
    assert first[:2] == (6 + late, "shortage")
    assert first[2] == fewest(12.0)
    assert second == (21 + w, "release", fewest(6.0))  # all w minutes have to be below T_min
    assert third[1] == "shortage" and 34 < third[0] <= 36  # three times the rate: the queue grows at once
    assert third[2] == fewest(18.0)


def test_the_smaller_window_reacts_sooner(tmp_path: Path) -> None:
    three, six = stepped(LONG, 3, tmp_path / "3", 33), stepped(LONG, 6, tmp_path / "6", 33)
    assert [minute for minute, _, _ in three] == [9, 24]  # the paper: 3 minutes after each step
    assert [minute for minute, _, _ in six] == [12, 27]  # the paper: the 12th minute, and 6 minutes after the step
    assert three[0][0] < six[0][0] and three[1][0] < six[1][0]


def test_only_the_larger_window_skips_a_short_burst(tmp_path: Path) -> None:
    assert stepped(SHORT, 6, tmp_path / "6", 25) == []
    reasons = [(minute, reason) for minute, reason, _ in stepped(SHORT, 3, tmp_path / "3", 25)]
    assert reasons[0] == (9, "shortage")
    assert reasons[1][1] == "release" and reasons[1][0] <= 15
    assert len(reasons) == 2


# ---- figure 10: K = 7, rows that arrive in bulks

BURSTY_SERVICE = {"extract": 4.2, "match": 2.9, "aggregate": 200.0}
BURSTY_SCV = {"extract": (0.12, 1.5), "match": (4.0, 2.0), "aggregate": (1.0, 1.0)}


@pytest.fixture(scope="module")
def played() -> dict[tuple[str, int], float]:
    """Return mean latencies of stations at 6 frames/s, simulated row by row."""
    latencies = {}
    for name, service in BURSTY_SERVICE.items():
        for k in range(1, 6):
            if k * service > 6.0:
                rng = np.random.default_rng(7)
                latencies[name, k] = float(station_latencies_s(rng, 6.0, service, k, *BURSTY_SCV[name], 120_000).mean())
    return latencies


def test_gigk_chooses_right_where_mmk_chooses_wrong(played: dict[tuple[str, int], float], tmp_path: Path) -> None:
    possible = [
        counts
        for counts in allocations(list(BURSTY_SERVICE), 7)
        if all(station in played for station in counts.items())
    ]
    ranked = sorted(possible, key=lambda counts: sum(played[station] for station in counts.items()))
    assert [tuple(counts.values()) for counts in ranked[:2]] == [(2, 4, 1), (3, 3, 1)]
    chosen = {}
    for queue in ("mmk", "gigk"):
        clock = FakeClock()
        flow = video()
        engine = QueueingEngine(
            flow,
            plan_of(flow, {"extract": 2, "match": 3, "aggregate": 2}, slots=7),
            clock=clock,
            rate=lambda _: 6.0,
            service_per_s=BURSTY_SERVICE,
            scv=BURSTY_SCV,
            latency_s=lambda name, _, k: played[name, k],
        )
        policy = Drs(DrsSettings(goal=LeastLatency(), queue=queue))  # type: ignore[arg-type]
        drive(tmp_path / queue, engine, clock, policy, windows=8)
        chosen[queue] = tuple(engine.plan.replicas.values())
    assert chosen == {"mmk": (3, 3, 1), "gigk": (2, 4, 1)}
