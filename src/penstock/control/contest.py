"""A contest of the arena: one application on one kind of engine, all policies from the same starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from penstock.control.arena import (
    Standing,
    Summary,
    any_plans,
    best_plan,
    compete,
    every_plan,
    league,
    remembering,
    summary,
    trial,
)
from penstock.control.controller import Settings
from penstock.control.scenarios import FINE, SCENARIOS
from penstock.control.shape import Shape
from penstock.control.situation import Policy
from penstock.dataflow import PlanError
from penstock.engines.simulated import Behaviour, Mode, SimulatedEngine
from penstock.plan import default_plan
from penstock.planning.trace import Trace

Watched = Callable[[Sequence[Any], str], Iterable[Any]]


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    application: str
    engine: str
    plans: int  # that were tried
    best: dict[str, int]  # replicas by region
    best_cuts: tuple[str, ...]
    best_latency_s: float
    league: list[Summary]

    def __str__(self) -> str:
        ratio = ":".join(map(str, self.best.values()))
        return f"{self.application}, {self.engine}: best of {self.plans} plans {ratio}, {self.best_latency_s:.3g} s"


def hold(
    application: str,
    engine: str,
    policies: Sequence[Policy],
    settings: Settings,
    *,
    slots: int,
    starts: int,
    windows: int,
    every_s: float,
    seed: int,
    quick_s: float = 600.0,
    long_s: float = 6_000.0,
    trace: Trace | None = None,
    watched: Watched = lambda steps, what: steps,
) -> Contest:
    """Plans are judged by `quick_s` of simulated time, the best of them by `long_s`; `watched` is told of the steps.

    The load is steady, or goes along a trace whose last rate stands for it: so the best plan at the end is the same.
    """
    micro_batch = engine == Mode.MICRO_BATCH
    flow, behaviour = SCENARIOS[application](FINE if micro_batch else 1)
    shape = Shape.of(flow)
    ones = default_plan(flow, slots=slots, replicas={region.name: 1 for region in shape.regions})
    plans = list(every_plan(shape, ones, slots, micro_batch=micro_batch))
    judge = remembering(trial(flow, behaviour, engine, seed=seed, seconds=long_s))
    quick = trial(flow, behaviour, engine, seed=seed, seconds=quick_s)
    best, best_s = best_plan(watched(plans, "all plans"), quick, judge)
    if not math.isfinite(best_s):
        raise PlanError(f"no plan of '{application}' within {slots} slots keeps up with its load; give more --slots")
    played = behaviour if trace is None else _along(behaviour, trace)
    begin = list(islice(any_plans(shape, ones, slots, micro_batch=micro_batch, seed=seed), starts))

    def from_start(policy: Policy, number: int) -> Standing:
        fresh = SimulatedEngine(flow, played, plan=begin[number], mode=engine, seed=seed + 1 + number)
        return compete(
            policy,
            fresh,
            fresh.clock,
            windows=windows,
            every_s=every_s,
            settings=settings,
            judge=judge,
            best_s=best_s,
            max_s=2 * best_s,
        )

    standings = [summary([from_start(one, n) for n in range(starts)]) for one in watched(policies, "policies")]
    return Contest(
        application=application,
        engine=engine,
        plans=len(plans),
        best=dict(best.replicas),
        best_cuts=tuple(sorted(best.cuts)),
        best_latency_s=best_s,
        league=league(standings),
    )


def _along(behaviour: Behaviour, trace: Trace) -> Behaviour:
    """The same, with the rates of all sources in proportion to the trace."""
    last = trace.rates[-1]
    if not last > 0:
        raise PlanError("the trace ends with a rate of 0; its last rate stands for the application's own, so give one")
    course = [(number * trace.interval_s, rate / last) for number, rate in enumerate(trace.rates)]
    sources = {
        name: msgspec.structs.replace(one, rates=tuple((at_s, share * one.rates[-1][1]) for at_s, share in course))
        if one.rates
        else one
        for name, one in behaviour.sources.items()
    }
    return msgspec.structs.replace(behaviour, sources=sources)
