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
from penstock.models.core_sharing import core_stretch
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
    replicas: int  # servers: replicas of the plan times their threads
    slots: tuple[ReplicaSlot, ...]  # by server; empty if the station takes no time and needs no slot
    key_shares: tuple[float, ...]  # by replica: its share of the rows; empty if rows are not distributed by key
    threads: int = 1  # servers that share the slot of one replica of the plan
    entry_s: float = 0.0  # time of a replica to take a row from the queue, without the work of the operators

    @property
    def name(self) -> str:
        return self.operators[0]


def stations(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> tuple[SimulatedStation, ...]:
    """Return the stations of a dataflow under a plan, upstream first."""
    pipeline_of = {name: pipeline.name for pipeline in pipelines(flow, plan) for name in pipeline.operators}
    runs = _runs(flow, plan)
    working = [
        (run[0], replicas, _threads(plan, run), _cpu_share(flow, behaviour, run))
        for run, replicas in runs
        if any(_takes_time(behaviour, name) for name in run)
    ]
    slots = replica_slots(working, plan, behaviour)
    entrances = {region.name for region in regions(flow)}  # rows are distributed over replicas there
    result = []
    for names, replicas in runs:
        first, threads = behaviour.of(names[0]), _threads(plan, names)
        # The threads of a replica take rows from the same queue.
        by_key = threads == 1 and (
            first.keys > 0 or (first.queue is Queue.REPLICA and flow[names[0]].kind is Kind.KEYED)
        )
        result.append(
            SimulatedStation(
                operators=names,
                pipeline=pipeline_of[names[0]],
                replicas=replicas * threads,
                threads=threads,
                slots=slots.get(names[0], ()),
                key_shares=tuple(key_shares(first.keys, first.zipf, replicas).tolist()) if by_key else (),
                entry_s=behaviour.thread.per_row_s(
                    replicas if names[0] in entrances else 1, sent_rows=_sent_rows(flow, behaviour, names)
                )
                if names[0] in slots
                else 0.0,
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


def _threads(plan: Plan, run: Sequence[str]) -> int:
    """Return the threads of each replica of a station: as many as that of its operators with the most threads."""
    return max(plan.threads.get(name, 1) for name in run)


def _sent_rows(flow: Dataflow, behaviour: Behaviour, names: Sequence[str]) -> float:
    """Return the expected rows that leave a station for each row that enters it, counted for each consumer.

    Consumers that take no time, such as most sinks, have no thread of their own.
    """
    consumers = sum(_takes_time(behaviour, consumer.name) for consumer in flow.consumers(names[-1]))
    return consumers * math.prod(
        behaviour.selectivity(flow, name).mean for name in names if flow[name].kind is not Kind.SINK
    )


def _takes_time(behaviour: Behaviour, operator: str) -> bool:
    service = behaviour.of(operator).service_s
    return not (isinstance(service, Fixed) and service.value == 0)


def _cpu_share(flow: Dataflow, behaviour: Behaviour, run: Sequence[str]) -> float:
    """Return the share of the time of a station in which it uses its core, over the operators that a row passes."""
    rows, total_s, cpu_s = 1.0, 0.0, 0.0
    for name in run:
        own = behaviour.of(name)
        total_s += rows * own.service_s.mean
        cpu_s += rows * own.service_s.mean * own.cpu_share
        rows *= behaviour.selectivity(flow, name).mean
    return cpu_s / total_s if total_s > 0 else 1.0


def replica_slots(
    working: Sequence[tuple[str, int, int, float]], plan: Plan, behaviour: Behaviour
) -> dict[str, tuple[ReplicaSlot, ...]]:
    """Assign replicas to slots by the strategy of the cluster. Return the slots by the first operator of each station.

    `working` are the stations that need slots: first operator, replicas, threads per replica and share of the time on a
    core. The threads of a replica have the same slot, and an entry each in the result. The slowdown assumes that all
    threads on a slot are busy. This is exact for one thread per slot and pessimistic otherwise.
    """
    order = [(operator, threads, share) for operator, replicas, threads, share in working for _ in range(replicas)]
    places = _places(working, plan, behaviour.cluster.placement)
    on_slot: list[list[float]] = [[] for _ in range(plan.slots)]
    for slot, (_, threads, share) in zip(places, order, strict=True):
        on_slot[slot] += [share] * threads
    shares_of_slot = [tuple(shares) for shares in on_slot]
    curves = {operator: _curve(operator, behaviour.of(operator).curve) for operator, *_ in working}
    result: dict[str, list[ReplicaSlot]] = {operator: [] for operator, *_ in working}
    slowdowns: dict[tuple[str, tuple[float, ...]], float] = {}
    for slot, (operator, threads, share) in zip(places, order, strict=True):
        key = (operator, shares_of_slot[slot])
        if key not in slowdowns:
            slowdowns[key] = slowdown(curves[operator], len(shares_of_slot[slot]), share, shares_of_slot[slot])
        executor = slot // behaviour.cluster.slots_per_executor
        result[operator] += [ReplicaSlot(executor=executor, slowdown=slowdowns[key])] * threads
    return {operator: tuple(slots) for operator, slots in result.items()}


def _places(working: Sequence[tuple[str, int, int, float]], plan: Plan, strategy: str) -> list[int]:
    """Return the slot of each replica. Each group has slots of its own, behind those for the operators without one."""
    group_of = plan.group_of
    first: dict[str | None, int] = {None: 0}
    slots_of: dict[str | None, int] = {None: plan.slots - plan.group_slots}
    for name, group in plan.groups.items():
        first[name], slots_of[name] = sum(slots_of.values()), group.slots
    places: dict[str, list[int]] = {}  # by the first operator of a station
    for group_name, slots in slots_of.items():
        counts = [(operator, replicas) for operator, replicas, _, _ in working if group_of.get(operator) == group_name]
        placed = iter(PLACEMENTS[strategy](counts, slots) if counts else [])
        for operator, replicas in counts:
            places[operator] = [first[group_name] + next(placed) for _ in range(replicas)]
    return [slot for operator, *_ in working for slot in places[operator]]


def pace(flow: Dataflow, behaviour: Behaviour, station: SimulatedStation) -> float:
    """Return the time of a replica that has a slot for itself, relative to the same work with one thread."""
    share, curve = (
        _cpu_share(flow, behaviour, station.operators),
        _curve(station.name, behaviour.of(station.name).curve),
    )
    return slowdown(curve, station.threads, share, [share] * station.threads) / station.threads


def slowdown(curve: Curve | None, threads: int, cpu_share: float = 1.0, shares: Sequence[float] = ()) -> float:
    """Return how much slower each thread on a slot is: threads x rate(1) / rate(threads).

    Without a curve the threads share one core. `shares` are the shares of their time in which they need it, `cpu_share`
    that of this thread. The time on the core takes longer, the time in which a thread waits does not.

    >>> slowdown(None, 3)
    3.0
    >>> [round(slowdown(None, 3, share, [share] * 3), 6) for share in (0.0, 0.2, 0.5)]
    [1.0, 1.0, 1.5]
    """
    if curve is None:
        return 1.0 - cpu_share + cpu_share * core_stretch(shares or [1.0] * threads)
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
