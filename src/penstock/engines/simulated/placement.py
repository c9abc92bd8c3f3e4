"""Which replica sits on which slot, and how much those that share a slot slow each other down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.engines.simulated.behaviour import Behaviour, Cluster
from penstock.engines.simulated.distributions import BehaviourError
from penstock.models.curve import Curve, CurvePoint, curve_from_points
from penstock.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Of one replica: slots are dealt in turn."""

    slot: int
    executor: int
    slowdown: float  # a row takes so many times as long as on a slot of one's own


def executors_of(plan: Plan, cluster: Cluster) -> int:
    """
    >>> executors_of(Plan(dataflow="f", slots=9), Cluster(slots_per_executor=4))
    3
    """
    return math.ceil(plan.slots / cluster.slots_per_executor)


def slowdown(curve: Curve | None, threads: int) -> float:
    """Of each of some threads on one slot: threads x rate(1) / rate(threads). Without a curve they share one core.

    >>> slowdown(None, 3)
    3.0
    """
    if curve is None:
        return float(threads)
    return threads * curve.single.rows_per_s / curve.at(threads).rows_per_s


def curve_of(operator: str, points: Mapping[str, CurvePoint]) -> Curve | None:
    if not points:
        return None
    if not all(threads.isdigit() for threads in points):
        raise BehaviourError(
            f"the curve of '{operator}' goes by thread counts, such as '1' and '4', not {list(points)}"
        )
    return curve_from_points({int(threads): point for threads, point in points.items()})


def seats(working: Sequence[tuple[str, int]], plan: Plan, behaviour: Behaviour) -> dict[str, tuple[Seat, ...]]:
    """Operator (the first of a station) -> the seats of its replicas; `working` are the stations that need slots.

    Who shares a slot is counted as if all of them were busy: exact where a slot has one replica, else on the safe side.
    """
    order = [operator for operator, replicas in working for _ in range(replicas)]
    on_slot = np.bincount(np.arange(len(order)) % plan.slots, minlength=plan.slots)
    curves = {operator: curve_of(operator, behaviour.of(operator).curve) for operator, _ in working}
    found: dict[str, list[Seat]] = {operator: [] for operator, _ in working}
    known: dict[tuple[str, int], float] = {}
    for i, operator in enumerate(order):
        slot = i % plan.slots
        threads = int(on_slot[slot])
        if (operator, threads) not in known:
            known[operator, threads] = slowdown(curves[operator], threads)
        found[operator].append(
            Seat(slot=slot, executor=slot // behaviour.cluster.slots_per_executor, slowdown=known[operator, threads])
        )
    return {operator: tuple(some) for operator, some in found.items()}


def key_shares(keys: int, zipf: float, replicas: int) -> np.ndarray:
    """The share of the rows that each replica gets: keys weigh i^-zipf, and a hash puts each on a replica.

    >>> key_shares(keys=0, zipf=0.0, replicas=2).tolist()
    [0.5, 0.5]
    """
    if keys <= 0:
        return np.full(replicas, 1.0 / replicas)
    weights = np.arange(1, keys + 1, dtype=float) ** -zipf
    hashed = np.arange(1, keys + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    where = ((hashed >> np.uint64(32)) % np.uint64(replicas)).astype(np.int64)
    return np.asarray(np.bincount(where, weights=weights, minlength=replicas) / weights.sum())
