"""DRS, section V, on simulated rows: measurements are noisy, queues build up slowly, and changes cause pauses."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import penstock
from penstock.control.arena.scenarios import SCENARIOS, video
from penstock.control.controller import Settings
from penstock.control.guards import Cooldown, Hysteresis
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.policy import Policy
from penstock.control.simulation import Duration, simulate
from penstock.engines.simulated import (
    Behaviour,
    Empirical,
    Exponential,
    Fixed,
    Gamma,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
    Uniform,
)
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.measure.smoothing import MovingAverage
from penstock.store import DecisionRecord, Store, StoreReader
from tests.support.applications import PATTERNS_SERVICE, VIDEO_SERVICE, allocations, mean_s, plan_of
from tests.support.driving import drive
from tests.support.memory_engine import FakeClock
from tests.support.scripted import scripted_engine


def changes(
    engine: SimulatedEngine, policy: Policy, at: Path, *, windows: int, window_s: float, smoothed: int
) -> list[DecisionRecord]:
    settings = Settings(
        mode="active", smoothing=MovingAverage(smoothed), warm_up_s=0.0, stale_after_s=3 * window_s, load_change=0.2
    )
    with Store(at) as store:
        return simulate(
            policy, engine, store, settings, clock=engine.clock, duration=Duration(windows=windows, window_s=window_s)
        )[1]


# ---- figures 6 and 8: K = 22

PUBLISHED = {"video": (10, 11, 1), "patterns": (6, 13, 3)}
VISITS = {
    "video": ({"extract": 1.0, "match": 1.0, "aggregate": 1.0}, 13.0, VIDEO_SERVICE, 300.0),
    "patterns": ({"generate": 1.0, "detect": 1.25, "report": 0.25}, 320.0, PATTERNS_SERVICE, 60.0),
}


@pytest.mark.parametrize("application", VISITS)
def test_from_any_start_one_change_leads_to_the_best_of_all_allocations(application: str, tmp_path: Path) -> None:
    visits, external, service, window_s = VISITS[application]
    every = list(allocations(list(service), 22))
    best = min(every, key=lambda counts: mean_s(visits, external, service, counts))
    assert tuple(best.values()) == PUBLISHED[application]
    for number, start in enumerate(every[:: len(every) // 12]):
        flow, behaviour = SCENARIOS[application]()
        engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, start), seed=number)
        policy = Drs(DrsSettings(goal=LeastLatency(max_slots=22)))
        made = changes(engine, policy, tmp_path / str(number), windows=4, window_s=window_s, smoothed=3)
        assert engine.plan.replicas == best, start
        assert len(made) == (start != best)


@pytest.mark.parametrize("start", [(8, 12, 2), (11, 9, 2)])
def test_the_best_allocation_is_kept(start: tuple[int, ...], tmp_path: Path) -> None:
    """Figure 8: one change, as early as T_ra allows, and then the latency that the model predicts."""
    flow, behaviour = video()
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, dict(zip(VIDEO_SERVICE, start, strict=True))), seed=2)
    policy = Cooldown(Hysteresis(Drs(DrsSettings(goal=LeastLatency(max_slots=22))), gain=0.05), seconds=14 * 60.0)
    (change,) = changes(engine, policy, tmp_path, windows=60, window_s=60.0, smoothed=5)
    assert tuple(engine.plan.replicas.values()) == PUBLISHED["video"]
    assert change.verdict == "kept" and change.at_s == pytest.approx(14 * 60.0)
    engine.start()
    engine.advance(3600.0)  # the backlog from before the change has drained
    engine.observe()
    engine.advance(3 * 3600.0)
    latency = engine.observe().latency
    visits, external, service, _ = VISITS["video"]
    assert latency is not None
    assert latency.mean_s == pytest.approx(mean_s(visits, external, service, engine.plan.replicas), rel=0.2)


# ---- figure 9: T_max 1000 ms, T_min 450 ms, T_ra = w windows, rates of 6, 12 and 18 frames/s
# A window has twenty minutes instead of one, because near saturation the mean of a minute is mostly noise.

STEPS_SERVICE = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
T_MAX, T_MIN = 1.0, 0.45
WINDOW_S = 20 * 60.0
LONG = ((0, 6.0), (6, 12.0), (21, 6.0), (34, 18.0))  # (first window, rows/s)
SHORT = ((0, 6.0), (6, 12.0), (9, 6.0))


def fewest(rate: float) -> int:
    """Return the fewest slots that keep the latency within T_max, by brute force."""
    each = dict.fromkeys(STEPS_SERVICE, 1.0)
    every = (
        dict(zip(STEPS_SERVICE, counts, strict=True)) for counts in product(range(1, 12), range(1, 12), range(1, 3))
    )
    return min(sum(counts.values()) for counts in every if mean_s(each, rate, STEPS_SERVICE, counts) <= T_MAX)


def stepped(legs: tuple[tuple[int, float], ...], w: int, at: Path, windows: int) -> list[tuple[int, str, int]]:
    """Return (window, reason, slots) of the changes."""
    flow, _ = video()
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=1.0 / rate)) for name, rate in STEPS_SERVICE.items()
        },
        sources={"frames": SourceBehaviour(rates=tuple((window * WINDOW_S, rate) for window, rate in legs))},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}), seed=1)
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=T_MAX, min_s=T_MIN))), seconds=WINDOW_S * w)
    made = changes(engine, policy, at, windows=windows, window_s=WINDOW_S, smoothed=w)
    return [(int(row.at_s // WINDOW_S), row.reason_code, sum(row.new.replicas.values())) for row in made if row.new]


@pytest.mark.parametrize("w", [3, 6])
def test_slots_are_added_and_released_at_the_right_times(w: int, tmp_path: Path) -> None:
    """In the paper, changes come three windows after both steps with w = 3, and six or seven windows with w = 6."""
    first, second, third = stepped(LONG, w, tmp_path, 38)
    assert first[1:] == ("shortage", fewest(12.0)) and 6 + w - 1 <= first[0] <= 6 + w + 1
    assert second[1:] == ("release", fewest(6.0)) and 21 + w <= second[0] <= 21 + w + 1
    # Three times the rate exceeds the capacity of the slots, so the queue grows at once for any window.
    assert third[1:] == ("shortage", fewest(18.0)) and 34 < third[0] <= 36


def test_only_the_larger_window_skips_a_short_burst(tmp_path: Path) -> None:
    assert stepped(SHORT, 6, tmp_path / "6", 20) == []
    added, released = stepped(SHORT, 3, tmp_path / "3", 20)
    assert added == (9, "shortage", fewest(12.0))
    assert released[1:] == ("release", fewest(6.0)) and 12 <= released[0] <= 15  # the paper: the 15th


# ---- figure 10: K = 7, frames at regular times whose features arrive in bulks


def test_gigk_chooses_right_where_mmk_chooses_wrong(tmp_path: Path) -> None:
    """6 frames/s at intervals of U(1/9, 1/3). One frame in three has three features, on average one per frame."""
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
        if counts["extract"] > 1 and counts["match"] > 2:  # the plans without a growing backlog
            engine = engine_on(tuple(counts.values()))
            engine.start()
            engine.advance(20_000.0)
            latency = engine.observe().latency
            assert latency is not None
            played[tuple(counts.values())] = latency.mean_s
    assert sorted(played, key=lambda counts: played[counts])[:2] == [(2, 4, 1), (3, 3, 1)]
    chosen = {}
    for queue in ("mmk", "gigk"):
        engine = engine_on((2, 3, 2))
        policy = Drs(DrsSettings(goal=LeastLatency(), queue=queue))  # type: ignore[arg-type]
        changes(engine, policy, tmp_path / queue, windows=4, window_s=1_000.0, smoothed=3)
        chosen[queue] = tuple(engine.plan.replicas.values())
    assert chosen == {"mmk": (3, 3, 1), "gigk": (2, 4, 1)}


# ---- dataflows that are not in the paper


def test_no_slot_is_released_while_the_target_is_missed(tmp_path: Path) -> None:
    flow = penstock.Dataflow("bursts")
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=40.0))
    rows.keyed("work", lambda df: df, keys=["n"]).sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={"work": OperatorBehaviour(service_s=Exponential(mean=0.05))},
        sources={"rows": SourceBehaviour(rates=((0.0, 40.0),), batch=Fixed(value=40.0))},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, {"work": 3}, slots=60))
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=0.2))), seconds=30.0)
    made = changes(engine, policy, tmp_path, windows=60, window_s=10.0, smoothed=3)
    assert made
    for row in made:
        assert row.new is not None and row.before is not None
        if row.reason_code != "roll-back" and (row.before.latency_s or 0.0) > 0.2:
            assert sum(row.new.replicas.values()) > sum(row.old.replicas.values())


def test_no_slot_is_released_at_the_moment_when_the_load_returns(tmp_path: Path) -> None:
    flow, _ = video()
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=0.1 / rate)) for name, rate in STEPS_SERVICE.items()
        },
        # A window ends one second after the rate has changed.
        sources={"frames": SourceBehaviour(rates=((0.0, 60.0), (650.0, 0.0), (1360.0, 60.0)))},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}), seed=1)
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=0.2))), seconds=400.0)
    made = changes(engine, policy, tmp_path, windows=165, window_s=10.0, smoothed=5)
    assert [(row.at_s, row.reason_code) for row in made] == [(400.0, "release")]


def test_rows_that_go_one_way_or_the_other_are_counted_once(tmp_path: Path) -> None:
    flow = penstock.Dataflow("split")
    a = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=20.0)).keyed(
        "a", lambda df: df, keys=["n"]
    )
    for name in ("b", "c"):
        a.keyed(name, lambda df: df, keys=[f"key_{name}"]).sink(f"out_{name}", penstock.noop())
    costs = {"a": 0.02, "b": 0.02, "c": 0.5}
    operators = {name: OperatorBehaviour(service_s=Exponential(mean=s)) for name, s in costs.items()}
    operators["a"] = OperatorBehaviour(service_s=Exponential(mean=0.02), routes={"b": 0.9, "c": 0.1})
    engine = SimulatedEngine(flow, Behaviour(operators=operators), plan=plan_of(flow, {"a": 2, "b": 2, "c": 6}), seed=1)
    changes(engine, Ds2(), tmp_path, windows=8, window_s=100.0, smoothed=3)
    # 20, 18 and 2 rows/s occupy 0.4, 0.36 and 1 replicas; the last value is noisy.
    assert engine.plan.replicas["a"] == engine.plan.replicas["b"] == 1 and engine.plan.replicas["c"] in (1, 2)


def test_a_loop_that_few_rows_take_has_a_plan(tmp_path: Path) -> None:
    flow = penstock.Dataflow("retry")
    back = flow.feedback("back", schema="n bigint")
    first = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=20.0))
    b = flow.stateless("a", lambda df: df, inputs=[first, back]).keyed("b", lambda df: df, keys=["m"])
    b.feed(back)
    b.sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Exponential(mean=0.05)),
            "b": OperatorBehaviour(service_s=Exponential(mean=0.02), routes={"a": 0.3, "out": 0.7}),
        }
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, {"a": 4, "b": 4}), seed=1)
    changes(engine, Ds2(), tmp_path, windows=8, window_s=100.0, smoothed=3)
    # 20 / 0.7 = 28.6 rows/s pass both operators and occupy 1.43 and 0.57 replicas.
    assert engine.plan.replicas == {"a": 2, "b": 1, "out": 1}


@pytest.mark.parametrize("policy", [Ds2(), Stela(), Threshold()])
def test_stages_of_a_query_take_turns(policy: Policy, tmp_path: Path) -> None:
    flow = penstock.Dataflow("join")
    sides = [
        flow.source(name, penstock.generate(int, schema="n bigint", rows_per_s=1000.0)).stateless(
            f"map_{name}", lambda df: df
        )
        for name in ("left", "right")
    ]
    flow.keyed("join", lambda left, right: left, keys=["n"], inputs=sides).sink("out", penstock.noop())
    costs = {"map_left": 0.0006, "map_right": 0.0006, "join": 0.0003}  # 0.6 slots each, one after the other
    behaviour = Behaviour(
        operators={name: OperatorBehaviour(service_s=Fixed(value=s)) for name, s in costs.items()},
        batch=SimulatedBatchCosts(target_s=2.0),
    )
    plan = plan_of(flow, dict.fromkeys(costs, 1), slots=16)
    engine = SimulatedEngine(flow, behaviour, plan=plan, mode="micro-batch")
    settings = Settings(mode="active", smoothing=MovingAverage(2), micro_batch=True, warm_up_s=10.0, stale_after_s=60.0)
    with Store(tmp_path) as store:
        simulate(policy, engine, store, settings, clock=engine.clock, duration=Duration(windows=120, window_s=10.0))
    busy = sum(costs[name] * (2000 if name == "join" else 1000) / k for name, k in engine.plan.replicas.items())
    assert busy < (1.2 if isinstance(policy, Stela) else 1.0)  # Stela reports no other congested operator


# ---- effects that the model does not contain


def test_nothing_is_learned_of_the_model_while_a_backlog_drains(tmp_path: Path) -> None:
    flow, _ = video()
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=0.1 / rate)) for name, rate in STEPS_SERVICE.items()
        },
        sources={"frames": SourceBehaviour(rates=((0.0, 60.0), (300.0, 1000.0), (600.0, 60.0)))},
    )
    plan = plan_of(flow, {"extract": 3, "match": 3, "aggregate": 1}, slots=7)
    engine = SimulatedEngine(flow, behaviour, plan=plan, seed=1)
    policy = Hysteresis(Drs(DrsSettings(goal=FewestSlots(max_s=0.25, aim=0.8))), gain=0.05)
    changes(engine, policy, tmp_path, windows=150, window_s=10.0, smoothed=5)
    with StoreReader(tmp_path) as reader:
        rows = [row for _, row in reader.decisions()]
    assert all(row.memory.get("drs.correction", 1.0) < 1.5 for row in rows)
    last = rows[-1]
    assert last.before is not None and last.before.latency_s is not None and last.before.latency_s > 100.0
    assert "with 7 slots and a backlog (0.0" in last.reason


def test_the_lowest_possible_latency_is_reported_in_measured_seconds(tmp_path: Path) -> None:
    """Latencies are four times those of the model, so 0.2 s correspond to 0.05 s in the model."""
    clock = FakeClock()
    engine = scripted_engine(clock, slower=lambda plan: 4.0)
    policy = Drs(DrsSettings(goal=FewestSlots(max_s=0.25, aim=0.8)))
    last = drive(tmp_path, engine, clock, policy, windows=20)[-1]
    assert last.reason_code == "at-limit"
    assert (
        "the lowest possible mean latency is 1.7" in last.reason and "s, above 0.25 s, with any number" in last.reason
    )


def test_a_latency_that_no_model_explains_gets_slots_all_the_same(tmp_path: Path) -> None:
    """One row in a hundred reaches an operator with one busy replica, so its waiting has little weight in the model."""
    flow = penstock.Dataflow("sieve")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint, m bigint", rows_per_s=1000.0))
    few = rows.keyed("sift", lambda frame: frame, keys=["n"], columns=["n", "m"])
    few.keyed("study", lambda frame: frame, keys=["m"], columns=["m"]).sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={
            "sift": OperatorBehaviour(service_s=Fixed(value=0.001), selectivity=Uniform(low=0.0, high=0.02)),
            "study": OperatorBehaviour(service_s=Exponential(mean=0.095)),
        },
        sources={"rows": SourceBehaviour(rates=((0.0, 1000.0),))},
    )
    start = {"sift": 2, "study": 1}
    engine = SimulatedEngine(flow, behaviour, plan=plan_of(flow, start, slots=12), seed=3)
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=0.5, aim=0.8))), seconds=60.0)
    changes(engine, policy, tmp_path, windows=60, window_s=30.0, smoothed=5)
    assert engine.plan.replicas["study"] >= 2
    engine.start()
    engine.observe()
    engine.advance(600.0)
    stay = engine.observe().latency
    assert stay is not None and stay.mean_s < 0.5
