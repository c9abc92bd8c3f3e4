"""DRS, section V, on simulated rows: measurements have noise, queues take time, a change stops what it changes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from applications import PATTERNS_SERVICE, VIDEO_SERVICE, allocations, mean_s, plan_of

from penstock.control.controller import Settings
from penstock.control.guards import Cooldown, Hysteresis
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastSojourn
from penstock.control.rehearsal import rehearse
from penstock.control.scenarios import SCENARIOS, video
from penstock.control.situation import Policy
from penstock.engines.simulated import (
    Behaviour,
    Empirical,
    Exponential,
    Gamma,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
    Uniform,
)
from penstock.measure.smoothing import Windowed
from penstock.store import Decided, Store


def changes(
    engine: SimulatedEngine, policy: Policy, at: Path, *, windows: int, every_s: float, smoothed: int
) -> list[Decided]:
    settings = Settings(
        mode="active", smoothing=Windowed(smoothed), warm_up_s=0.0, stale_after_s=3 * every_s, load_change=0.2
    )
    with Store(at) as store:
        return rehearse(policy, engine, engine.clock, store, windows=windows, every_s=every_s, settings=settings)[1]


# ---- figures 6 and 8: K = 22

PUBLISHED = {"video": (10, 11, 1), "patterns": (6, 13, 3)}
VISITS = {
    "video": ({"extract": 1.0, "match": 1.0, "aggregate": 1.0}, 13.0, VIDEO_SERVICE, 300.0),
    "patterns": ({"generate": 1.0, "detect": 1.25, "report": 0.25}, 320.0, PATTERNS_SERVICE, 60.0),
}


@pytest.mark.parametrize("application", VISITS)
def test_from_any_start_one_change_leads_to_the_best_of_all_allocations(application: str, tmp_path: Path) -> None:
    visits, external, service, every_s = VISITS[application]
    every = list(allocations(list(service), 22))
    best = min(every, key=lambda counts: mean_s(visits, external, service, counts))
    assert tuple(best.values()) == PUBLISHED[application]
    for number, start in enumerate(every[:: len(every) // 12]):
        flow, behaviour = SCENARIOS[application]()
        engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, start), seed=number)
        policy = Drs(DrsSettings(goal=LeastSojourn(max_slots=22)))
        made = changes(engine, policy, tmp_path / str(number), windows=4, every_s=every_s, smoothed=3)
        assert engine.plan.replicas == best, start
        assert len(made) == (start != best)


@pytest.mark.parametrize("start", [(8, 12, 2), (11, 9, 2)])
def test_and_there_it_stays(start: tuple[int, ...], tmp_path: Path) -> None:
    """Figure 8: one change, as early as T_ra allows it, and a sojourn after it as the model says."""
    flow, behaviour = video()
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, dict(zip(VIDEO_SERVICE, start, strict=True))), seed=2)
    policy = Cooldown(Hysteresis(Drs(DrsSettings(goal=LeastSojourn(max_slots=22))), gain=0.05), seconds=14 * 60.0)
    (change,) = changes(engine, policy, tmp_path, windows=60, every_s=60.0, smoothed=5)
    assert tuple(engine.plan.replicas.values()) == PUBLISHED["video"]
    assert change.verdict == "kept" and change.observed is not None
    visits, external, service, _ = VISITS["video"]
    assert change.observed.sojourn_s == pytest.approx(mean_s(visits, external, service, engine.plan.replicas), rel=0.2)


# ---- figure 9: T_max 1000 ms, T_min 450 ms, T_ra = w windows, rates of 6, 12 and 18 frames/s
# A window has twenty minutes and not one: near saturation the mean of a minute is mostly noise.

STEPS_SERVICE = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
T_MAX, T_MIN = 1.0, 0.45
WINDOW_S = 20 * 60.0
LONG = ((0, 6.0), (6, 12.0), (21, 6.0), (34, 18.0))  # (window from which on, rows/s)
SHORT = ((0, 6.0), (6, 12.0), (9, 6.0))


def fewest(rate: float) -> int:
    """Slots that keep the sojourn within T_max, by brute force."""
    each = dict.fromkeys(STEPS_SERVICE, 1.0)
    every = (dict(zip(STEPS_SERVICE, one, strict=True)) for one in product(range(1, 12), range(1, 12), range(1, 3)))
    return min(sum(one.values()) for one in every if mean_s(each, rate, STEPS_SERVICE, one) <= T_MAX)


def stepped(legs: tuple[tuple[int, float], ...], w: int, at: Path, windows: int) -> list[tuple[int, str, int]]:
    """(window, reason, slots) of the changes."""
    flow, _ = video()
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=1.0 / rate)) for name, rate in STEPS_SERVICE.items()
        },
        sources={"frames": SourceBehaviour(rates=tuple((window * WINDOW_S, rate) for window, rate in legs))},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}), seed=1)
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=T_MAX, min_s=T_MIN))), seconds=WINDOW_S * w)
    made = changes(engine, policy, at, windows=windows, every_s=WINDOW_S, smoothed=w)
    return [(int(row.at_s // WINDOW_S), row.reason, sum(row.new.replicas.values())) for row in made if row.new]


@pytest.mark.parametrize("w", [3, 6])
def test_slots_are_added_and_released_at_the_right_times(w: int, tmp_path: Path) -> None:
    """The paper: with w = 3 three windows after the first and the second step, with w = 6 six or seven."""
    first, second, third = stepped(LONG, w, tmp_path, 38)
    assert first[1:] == ("shortage", fewest(12.0)) and 6 + w - 1 <= first[0] <= 6 + w + 1
    assert second[1:] == ("release", fewest(6.0)) and 21 + w <= second[0] <= 21 + w + 1
    # Three times the rate is more than the slots can do: the queue grows at once, whatever the window.
    assert third[1:] == ("shortage", fewest(18.0)) and 34 < third[0] <= 36


def test_only_the_larger_window_skips_a_short_burst(tmp_path: Path) -> None:
    assert stepped(SHORT, 6, tmp_path / "6", 20) == []
    added, released = stepped(SHORT, 3, tmp_path / "3", 20)
    assert added == (9, "shortage", fewest(12.0))
    assert released[1:] == ("release", fewest(6.0)) and 12 <= released[0] <= 15  # the paper: the 15th


# ---- figure 10: K = 7, frames at even times whose features come in bulks


def test_gigk_chooses_right_where_mmk_chooses_wrong(tmp_path: Path) -> None:
    """6 frames/s, U(1/9, 1/3) apart. One frame in three has features, three parts of them; that is one a frame."""
    flow, _ = video()
    behaviour = Behaviour(
        operators={
            "extract": OperatorBehaviour(
                service_s=Exponential(mean=1 / 4.2), selectivity=Empirical(values=(0.0, 0.0, 3.0))
            ),
            "match": OperatorBehaviour(service_s=Gamma(mean=1 / 2.9, scv=2.0)),
            "aggregate": OperatorBehaviour(service_s=Exponential(mean=1 / 200)),
        },
        sources={"frames": SourceBehaviour(rates=((0.0, 6.0),), interarrival=Uniform(low=1 / 9, high=1 / 3))},
    )

    def engine_on(counts: tuple[int, ...]) -> SimulatedEngine:
        plan = plan_of(flow, dict(zip(behaviour.operators, counts, strict=True)), slots=7)
        return SimulatedEngine(flow, behaviour, plan=plan, seed=5)

    played = {}
    for counts in allocations(list(behaviour.operators), 7):
        if counts["extract"] > 1 and counts["match"] > 2:  # those that keep up
            engine = engine_on(tuple(counts.values()))
            engine.start()
            engine.advance(20_000.0)
            sojourn = engine.observe().sojourn
            assert sojourn is not None
            played[tuple(counts.values())] = sojourn.mean_s
    assert sorted(played, key=lambda counts: played[counts])[:2] == [(2, 4, 1), (3, 3, 1)]
    chosen = {}
    for queue in ("mmk", "gigk"):
        engine = engine_on((2, 3, 2))
        policy = Drs(DrsSettings(goal=LeastSojourn(), queue=queue))  # type: ignore[arg-type]
        changes(engine, policy, tmp_path / queue, windows=4, every_s=1_000.0, smoothed=3)
        chosen[queue] = tuple(engine.plan.replicas.values())
    assert chosen == {"mmk": (3, 3, 1), "gigk": (2, 4, 1)}
