"""Stations: the units of replication of a dataflow under a plan, and the slots of their replicas.

A station is a run of operators that no cut divides and that the plan replicates together. Each of its replicas takes a
row through all of these operators. Rows wait between stations. A source is a station with one replica that takes no
time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, Kind, regions
from penstock.engines.simulated.behaviour import Behaviour, Queue
from penstock.engines.simulated.distributions import BehaviourError, Fixed
from penstock.engines.simulated.placement import PLACEMENTS
from penstock.models.curve import Curve, CurvePoint, curve_from_points
from penstock.plan import Plan, pipelines

_HASHED_KEYS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSlot:
    """The slot of one replica."""

    executor: int
    slowdown: float  # service time relative to a replica that has the slot for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStation:
    operators: tuple[str, ...]
    pipeline: str
    replicas: int
    slots: tuple[ReplicaSlot, ...]  # by replica; empty if the station takes no time and needs no slot
    key_shares: tuple[float, ...]  # by replica: its share of the rows; empty if rows are not distributed by key

    @property
    def name(self) -> str:
        return self.operators[0]


def stations(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> tuple[SimulatedStation, ...]:
    """Return the stations of a dataflow under a plan, upstream first."""
    pipeline_of = {name: pipeline.name for pipeline in pipelines(flow, plan) for name in pipeline.operators}
    runs = _runs(flow, plan)
    working = [(run[0], replicas) for run, replicas in runs if any(_takes_time(behaviour, name) for name in run)]
    slots = replica_slots(working, plan, behaviour)
    result = []
    for names, replicas in runs:
        first = behaviour.of(names[0])
        by_key = first.keys > 0 or (first.queue is Queue.REPLICA and flow[names[0]].kind is Kind.KEYED)
        result.append(
            SimulatedStation(
                operators=names,
                pipeline=pipeline_of[names[0]],
                replicas=replicas,
                slots=slots.get(names[0], ()),
                key_shares=tuple(key_shares(first.keys, first.zipf, replicas).tolist()) if by_key else (),
            )
        )
    return tuple(result)


def _runs(flow: Dataflow, plan: Plan) -> list[tuple[tuple[str, ...], int]]:
    """Return the operators and the replicas of each station: a region, divided at its cuts."""
    runs: list[tuple[tuple[str, ...], int]] = []
    for region in regions(flow):
        replicas = 1 if region.kind is Kind.SOURCE else plan.replicas[region.name]
        run: list[str] = []
        for name in region.operators:
            run.append(name)
            if name in plan.cuts or name == region.operators[-1]:
                runs.append((tuple(run), replicas))
                run = []
    return runs


def _takes_time(behaviour: Behaviour, operator: str) -> bool:
    service = behaviour.of(operator).service_s
    return not (isinstance(service, Fixed) and service.value == 0)


def replica_slots(
    working: Sequence[tuple[str, int]], plan: Plan, behaviour: Behaviour
) -> dict[str, tuple[ReplicaSlot, ...]]:
    """Assign replicas to slots by the strategy of the cluster. Return the slots by the first operator of each station.

    `working` are the stations that need slots: first operator and replicas. The slowdown assumes that all replicas of
    a slot are busy. This is exact for one replica per slot and pessimistic otherwise.
    """
    order = [operator for operator, replicas in working for _ in range(replicas)]
    places = PLACEMENTS[behaviour.cluster.placement](working, plan.slots)
    threads_on_slot = np.bincount(np.asarray(places, int), minlength=plan.slots)
    curves = {operator: _curve(operator, behaviour.of(operator).curve) for operator, _ in working}
    result: dict[str, list[ReplicaSlot]] = {operator: [] for operator, _ in working}
    slowdowns: dict[tuple[str, int], float] = {}
    for slot, operator in zip(places, order, strict=True):
        threads = int(threads_on_slot[slot])
        if (operator, threads) not in slowdowns:
            slowdowns[operator, threads] = slowdown(curves[operator], threads)
        executor = slot // behaviour.cluster.slots_per_executor
        result[operator].append(ReplicaSlot(executor=executor, slowdown=slowdowns[operator, threads]))
    return {operator: tuple(slots) for operator, slots in result.items()}


def slowdown(curve: Curve | None, threads: int) -> float:
    """Return how much slower each thread on a slot is: threads x rate(1) / rate(threads).

    Without a curve the threads share one core.

    >>> slowdown(None, 3)
    3.0
    """
    if curve is None:
        return float(threads)
    return threads * curve.single.rows_per_s / curve.at(threads).rows_per_s


def _curve(operator: str, points: Mapping[str, CurvePoint]) -> Curve | None:
    if not points:
        return None
    if not all(threads.isdigit() for threads in points):
        raise BehaviourError(
            f"The curve of '{operator}' has the keys {list(points)}; they must be thread counts such as '1' and '4'."
        )
    return curve_from_points({int(threads): point for threads, point in points.items()})


def key_shares(keys: int, zipf: float, replicas: int) -> np.ndarray:
    """Return the share of the rows of each replica: key i has the weight i^-zipf, and a hash assigns it to a replica.

    Keys after the first million are so many that a hash spreads them evenly. The sum of their weights is that of the
    midpoint rule: the integral of x^-zipf from K + 1/2 to N + 1/2.

    >>> key_shares(keys=0, zipf=0.0, replicas=2).tolist()
    [0.5, 0.5]
    """
    if keys <= 0:
        return np.full(replicas, 1.0 / replicas)
    hashed_keys = min(keys, _HASHED_KEYS)
    weights = np.arange(1, hashed_keys + 1, dtype=float) ** -zipf
    hashed = np.arange(1, hashed_keys + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    replica = ((hashed >> np.uint64(32)) % np.uint64(replicas)).astype(np.int64)
    spread = _weight_between(hashed_keys + 0.5, keys + 0.5, zipf)
    shares = np.bincount(replica, weights=weights, minlength=replicas) + spread / replicas
    return np.asarray(shares / (weights.sum() + spread))


def _weight_between(low: float, high: float, zipf: float) -> float:
    """Return the integral of x^-zipf."""
    if zipf == 1.0:
        return math.log(high / low)
    return float((high ** (1.0 - zipf) - low ** (1.0 - zipf)) / (1.0 - zipf))
