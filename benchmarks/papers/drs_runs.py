"""Runs of the two applications of the DRS paper on the row-by-row simulator.

The graphs and service rates are those of `penstock.control.arena.scenarios`: exponential service times, chosen so that
the best allocation of 22 slots is the published one. Chosen before any result was computed, because the paper omits
the values:

- Allocations of figure 6: the three that figure 8 names, and the first three others, in lexicographic order, at L1
  distance 2 from the recommended one. The paper shows the five closest ones in a plot without numbers.
- Frames: a new rate, uniform in 1 to 25 frames/s, in each second, with equal times between the frames of a second.
- Figure 9: service rates of 5, 4.5 and 1000 rows/s, so that 6 frames/s are possible within T_min. A minute of the paper
  is a window of 20 minutes, because the mean over a minute near saturation is mostly noise.
- Cost of a change in figure 9: adding an executor pauses for 6.5 s and removing one for 1 s, as measured on Spark
  (docs/architecture/spark-facts.md).
- Figure 10: one frame in three has three features, on average one per frame; matching has an SCV of 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from penstock.control.arena.scenarios import SCENARIOS
from penstock.control.controller import Settings
from penstock.control.guards import Cooldown
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policies.drs.stations import Queue
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
from penstock.engines.simulated.behaviour import ChangePause
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Latency, Window
from penstock.plan import default_plan
from penstock.store import DecisionRecord, Store, StoreReader

SLOTS = 22
Counts = tuple[int, int, int]
ALLOCATIONS: dict[str, tuple[Counts, ...]] = {
    "video": ((10, 11, 1), (8, 12, 2), (11, 9, 2), (9, 11, 2), (9, 12, 1), (10, 10, 2)),
    "patterns": ((6, 13, 3), (8, 12, 2), (7, 13, 2), (5, 13, 4), (5, 14, 3), (6, 12, 4)),
}
STARTS: dict[str, tuple[Counts, ...]] = {"video": ALLOCATIONS["video"][:3], "patterns": ALLOCATIONS["patterns"][:3]}
MINUTE_S = 60.0
STEP_SERVICE = {"extract": 5.0, "match": 4.5, "aggregate": 1000.0}
STEP_START: Counts = (3, 3, 1)
STEP_WINDOW_S = 20 * MINUTE_S
T_MAX_S, T_MIN_S = 1.0, 0.45
LONG = ((0, 6.0), (6, 12.0), (21, 6.0), (34, 18.0))  # (first minute, frames/s)
SHORT = ((0, 6.0), (6, 12.0), (9, 6.0))
BULK_SERVICE = {"extract": 4.2, "match": 2.9, "aggregate": 200.0}
BULK_LOADS = {5.0: Uniform(low=1 / 8, high=1 / 2), 6.0: Uniform(low=1 / 9, high=1 / 3)}
ADD_S, REMOVE_S = 6.5, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passive:
    """Ten minutes under one allocation, in which DRS only recommends."""

    latency: Latency
    predicted_s: float | None  # None: the model expects a growing backlog
    recommended: Counts


def behaviour_of(application: str, seed: int = 0) -> Behaviour:
    """Return the behaviour of figures 6 to 8."""
    _, behaviour = SCENARIOS[application]()
    if application == "patterns":
        return behaviour
    rng = np.random.default_rng(seed)
    rates = tuple((float(second), float(rng.uniform(1.0, 25.0))) for second in range(1800))
    return behaviour.replace(sources={"frames": SourceBehaviour(rates=rates, interarrival=Fixed(value=1.0))})


def engine_on(
    application: str, behaviour: Behaviour, counts: Counts, *, slots: int = SLOTS, seed: int = 0
) -> SimulatedEngine:
    """Return an engine with these replicas of the three operators."""
    flow, _ = SCENARIOS[application]()
    plan = default_plan(flow, slots=slots, replicas=dict(zip(behaviour.operators, counts, strict=True)))
    return SimulatedEngine(flow, behaviour, plan=plan, mode="row-by-row", seed=seed)


def counts_of(replicas: Mapping[str, int], behaviour: Behaviour) -> Counts:
    extract, match, aggregate = (replicas[name] for name in behaviour.operators)
    return extract, match, aggregate


def decided(
    engine: SimulatedEngine,
    policy: Policy,
    *,
    windows: int,
    window_s: float,
    smoothed: int,
    mode: str = "active",
) -> tuple[list[DecisionRecord], list[Window]]:
    """Return all decisions and windows of a run."""
    settings = Settings(
        mode=mode,  # type: ignore[arg-type]
        smoothing=MovingAverage(smoothed),
        warm_up_s=0.0,
        stale_after_s=3 * window_s,
    )
    with TemporaryDirectory() as directory:
        with Store(Path(directory)) as store:
            duration = Duration(windows=windows, window_s=window_s)
            simulate(policy, engine, store, settings, clock=engine.clock, duration=duration)
        with StoreReader(Path(directory)) as reader:
            return [row for _, row in reader.decisions()], [window for _, window in reader.windows()]


# ---- figures 6 and 7


@cache
def passive(application: str, counts: Counts, seed: int = 0) -> Passive:
    """Run an allocation for ten minutes; DRS recommends with the means over nine of them."""
    behaviour = behaviour_of(application, seed)
    engine = engine_on(application, behaviour, counts, seed=seed)
    rows, _ = decided(
        engine,
        Drs(DrsSettings(goal=LeastLatency(max_slots=SLOTS))),
        windows=10,
        window_s=MINUTE_S,
        smoothed=9,
        mode="recommend",
    )
    last = rows[-1]
    best = last.new.replicas if last.new is not None else engine.plan.replicas
    whole = engine_on(application, behaviour, counts, seed=seed)
    whole.start()
    whole.advance(10 * MINUTE_S)
    latency = whole.observe().latency
    assert latency is not None
    return Passive(latency=latency, predicted_s=by_the_model(last), recommended=counts_of(best, behaviour))


def by_the_model(row: DecisionRecord) -> float | None:
    """Return the predicted latency without the factor that DRS learns from measured latencies."""
    predicted, correction = row.inputs.get("predicted_latency_s"), row.inputs.get("correction")
    return None if predicted is None or not correction else float(predicted) / float(correction)


# ---- figure 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced:
    """Twenty-seven minutes with one possible change."""

    changed_min: int | None  # minute of the change
    final: Counts
    before_s: float  # mean latency before and after minute 14
    after_s: float


@cache
def rebalanced(application: str, start: Counts, seed: int = 0) -> Rebalanced:
    """Run DRS with T_ra = 14 minutes."""
    behaviour = behaviour_of(application, seed)
    engine = engine_on(application, behaviour, start, seed=seed)
    policy = Cooldown(Drs(DrsSettings(goal=LeastLatency(max_slots=SLOTS))), seconds=14 * MINUTE_S)
    rows, windows = decided(engine, policy, windows=27, window_s=MINUTE_S, smoothed=6)
    changes = [row for row in rows if row.applied == "ok"]
    begin_s = windows[0].start_s
    means = [(window.end_s - begin_s, window.latency.mean_s) for window in windows if window.latency is not None]
    return Rebalanced(
        changed_min=round((changes[0].at_s - begin_s) / MINUTE_S) if changes else None,
        final=counts_of(engine.plan.replicas, behaviour),
        before_s=float(np.mean([mean for at, mean in means if at <= 14 * MINUTE_S])),
        after_s=float(np.mean([mean for at, mean in means if at > 17 * MINUTE_S])),  # the backlog has drained
    )


# ---- figure 9


@cache
def stepped(legs: tuple[tuple[int, float], ...], w: int, minutes: int) -> list[tuple[int, str, Counts]]:
    """Return (minute, reason, allocation) of the changes under a load that changes in steps."""
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=1.0 / rate)) for name, rate in STEP_SERVICE.items()
        },
        sources={"frames": SourceBehaviour(rates=tuple((minute * STEP_WINDOW_S, rate) for minute, rate in legs))},
    )
    engine = engine_on("video", behaviour, STEP_START, seed=1)
    policy = Cooldown(Drs(DrsSettings(goal=FewestSlots(max_s=T_MAX_S, min_s=T_MIN_S))), seconds=STEP_WINDOW_S * w)
    rows, windows = decided(engine, policy, windows=minutes, window_s=STEP_WINDOW_S, smoothed=w)
    begin_s = windows[0].start_s
    return [
        (round((row.at_s - begin_s) / STEP_WINDOW_S), row.reason_code, counts_of(row.new.replicas, behaviour))
        for row in rows
        if row.applied == "ok" and row.new is not None
    ]


@cache
def cost_of_change(*, adding: bool, seed: int = 0) -> float:
    """Return the increase of the mean latency in the minute of a change, relative to the same minute without it."""
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=1.0 / rate)) for name, rate in STEP_SERVICE.items()
        },
        sources={"frames": SourceBehaviour(rates=((0.0, 12.0 if adding else 6.0),))},
        change=ChangePause(fixed_s=ADD_S if adding else REMOVE_S),
    )
    few, many = (3, 4, 1), (4, 5, 1)
    old, new = (few, many) if adding else (many, few)
    means = []
    for target in (old, new):
        engine = engine_on("video", behaviour, old, seed=seed)
        engine.start()
        engine.advance(10 * MINUTE_S)
        engine.observe()
        if target != old:
            plan = engine.plan
            engine.apply(plan.replace(replicas=plan.replicas | dict(zip(STEP_SERVICE, target, strict=True))))
            engine.advance(MINUTE_S - behaviour.change.fixed_s)
        else:
            engine.advance(MINUTE_S)
        latency = engine.observe().latency
        assert latency is not None
        means.append(latency.mean_s)
    return means[1] - means[0]


# ---- figure 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """One allocation of seven slots: the measured latency, and the latency that each model predicts."""

    measured_s: float
    predicted_s: dict[str, float]
    chosen: dict[str, Counts]


@cache
def bulk(frames_per_s: float, counts: Counts, seed: int = 5) -> Bulk:
    """Run an allocation under features that arrive in bulks."""
    behaviour = Behaviour(
        operators={
            "extract": OperatorBehaviour(
                service_s=Exponential(mean=1 / BULK_SERVICE["extract"]), selectivity=Empirical(values=(0.0, 0.0, 3.0))
            ),
            "match": OperatorBehaviour(service_s=Gamma(mean=1 / BULK_SERVICE["match"], scv=2.0)),
            "aggregate": OperatorBehaviour(service_s=Exponential(mean=1 / BULK_SERVICE["aggregate"])),
        },
        sources={
            "frames": SourceBehaviour(rates=((0.0, frames_per_s),), interarrival=BULK_LOADS[frames_per_s]),
        },
    )
    measured = engine_on("video", behaviour, counts, slots=7, seed=seed)
    measured.start()
    measured.advance(20_000.0)
    latency = measured.observe().latency
    assert latency is not None
    predicted, chosen = {}, {}
    queues: tuple[Queue, ...] = ("mmk", "gigk")
    for queue in queues:
        engine = engine_on("video", behaviour, counts, slots=7, seed=seed)
        policy = Drs(DrsSettings(goal=LeastLatency(), queue=queue))
        rows, _ = decided(engine, policy, windows=4, window_s=1_000.0, smoothed=3, mode="recommend")
        last = rows[-1]
        predicted[queue] = by_the_model(last) or math.inf
        replicas = last.new.replicas if last.new is not None else engine.plan.replicas
        chosen[queue] = counts_of(replicas, behaviour)
    return Bulk(measured_s=latency.mean_s, predicted_s=predicted, chosen=chosen)
