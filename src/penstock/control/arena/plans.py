"""Enumerate plans, and simulate each of them to find the best one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from penstock.control.topology import Topology
from penstock.dataflow import Dataflow
from penstock.engines.simulated import Behaviour, SimulatedEngine
from penstock.plan.plan import Plan

LatencyOf = Callable[[Plan], float]  # latency (s) under a plan; infinite if the plan does not keep up

_GROWTH = 1.25  # ratio of the second to the first half of a simulation; an unstable plan has about 1.75 / 1.25
_FINALISTS = 24


def every_plan(topology: Topology, plan: Plan, slots: int, *, micro_batch: bool = False) -> Iterator[Plan]:
    """Yield all plans within `slots` that can be optimal.

    Row by row, another replica never harms and cuts make no difference. Only plans that use exactly `slots` count:
    C(slots - 1, regions - 1), which is 210 for 22 slots and 3 regions. In micro-batches both matter: all cuts between
    regions are combined with all replica counts that fit.
    """
    names = [region.name for region in topology.regions]
    ranges = [range(1, slots + 1 if region.replicable else 2) for region in topology.regions]
    for cuts in _cut_sets(topology) if micro_batch else [plan.cuts]:
        for counts in product(*ranges):
            if not micro_batch and sum(counts) != slots:
                continue
            candidate = topology.rescaled(plan.replace(cuts=cuts), dict(zip(names, counts, strict=True)))
            if topology.slots(candidate, micro_batch=micro_batch) <= slots:
                yield candidate


def _cut_sets(topology: Topology) -> Iterator[frozenset[str]]:
    inner = {topology.last_operator(before) for before, _ in topology.streams if before not in topology.sources}
    optional = sorted(inner - topology.required_cuts - topology.forbidden_cuts)
    for size in range(len(optional) + 1):
        yield from (topology.required_cuts | frozenset(chosen) for chosen in combinations(optional, size))


def random_plans(topology: Topology, plan: Plan, slots: int, *, micro_batch: bool, seed: int) -> Iterator[Plan]:
    """Yield the given plan, and then random plans within `slots` without end."""
    random_source = random.Random(seed)
    yield plan
    cut_sets = list(_cut_sets(topology)) if micro_batch else [plan.cuts]
    while True:
        counts = {
            region.name: random_source.randint(1, slots) if region.replicable else 1 for region in topology.regions
        }
        candidate = topology.rescaled(plan.replace(cuts=random_source.choice(cut_sets)), counts)
        if topology.slots(candidate, micro_batch=micro_batch) <= slots:
            yield candidate


def simulated_latency(flow: Dataflow, behaviour: Behaviour, mode: str, *, seed: int, seconds: float) -> LatencyOf:
    """Return a function that simulates a plan for `seconds`, after a warm-up of the same length, with the same rows."""

    def latency_of(plan: Plan) -> float:
        engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode, seed=seed)
        engine.start()
        engine.advance(seconds)
        engine.observe()
        halves = []
        for _ in range(2):
            engine.advance(seconds / 2)
            halves.append(engine.observe().latency)
        first, second = halves
        if first is None or second is None or second.mean_s > _GROWTH * first.mean_s:
            return math.inf
        return (first.rows * first.mean_s + second.rows * second.mean_s) / (first.rows + second.rows)

    return latency_of


def cached(latency_of: LatencyOf) -> LatencyOf:
    """Return a function that evaluates each plan once."""
    known: dict[str, float] = {}

    def cached_latency_of(plan: Plan) -> float:
        key = plan.to_json()
        if key not in known:
            known[key] = latency_of(plan)
        return known[key]

    return cached_latency_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best of all plans, and the function that measured it."""

    plan: Plan
    latency_s: float
    latency_of: LatencyOf

    def share(self, plan: Plan) -> float:
        """Return the best latency divided by the plan's: 1 is optimal, 0 does not keep up."""
        latency_s = self.latency_of(plan)
        return self.latency_s / latency_s if math.isfinite(latency_s) and latency_s > 0 else 0.0


def best_plan(plans: Iterable[Plan], short: LatencyOf, long: LatencyOf) -> Optimum:
    """Evaluate all plans by `short`, and the best of them again by `long`. The first one of equal plans wins."""
    ranked = sorted(((short(plan), plan) for plan in plans), key=lambda entry: entry[0])
    best, latency_s = min(((plan, long(plan)) for _, plan in ranked[:_FINALISTS]), key=lambda entry: entry[1])
    return Optimum(plan=best, latency_s=latency_s, latency_of=long)
