"""Stations: the units of replication of a dataflow under a plan, and the slots of their replicas.

A station is a run of operators that no cut divides and that the plan replicates together. Each of its replicas takes a
row through all of these operators. Rows wait between stations. A source is a station with one replica that takes no
time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, Kind, regions
from penstock.engines.simulated.behaviour import Behaviour, Queue
from penstock.engines.simulated.distributions import BehaviourError, Fixed
from penstock.engines.simulated.placement import PLACEMENTS
from penstock.models.core_sharing import core_stretch
from penstock.models.curve import Curve, CurvePoint, curve_from_points
from penstock.plan import Plan, pipelines

ReplicaThreads = Mapping[str, int]  # operator -> threads in one replica of its station

_HASHED_KEYS = 1_000_000
_KEY_GROUPS = 1_024  # groups that a hash spreads over replicas with unequal shares


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSlot:
    """The slot of one server: a thread of a replica."""

    executor: int
    slowdown: float  # service time relative to one thread that has the slot for itself
    pool: int = 0  # the cores that it shares with others, in its slot or its executor
    core_share: float = 0.0  # cores of the pool that it uses while it works; 0: it shares none


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStation:
    operators: tuple[str, ...]
    pipeline: str
    bundles: tuple[int, ...]  # threads of each replica of the plan
    slots: tuple[ReplicaSlot, ...]  # by server; empty if the station takes no time and needs no slot
    key_shares: tuple[float, ...]  # share of the rows of each replica; empty if all replicas take rows from one queue
    is_routed: bool = False  # whether the plan determines the shares
    entry_s: float = 0.0  # time of a replica to take a row from the queue, without the work of the operators

    @property
    def name(self) -> str:
        return self.operators[0]

    @property
    def replicas(self) -> int:
        """The servers: threads of all replicas of the plan."""
        return sum(self.bundles)


def stations(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> tuple[SimulatedStation, ...]:
    """Return the stations of a dataflow under a plan, upstream first."""
    pipeline_of = {name: pipeline.name for pipeline in pipelines(flow, plan) for name in pipeline.operators}
    runs = _runs(flow, plan)
    working = {
        run[0]: _replica_threads(plan, run, replicas)
        for run, replicas in runs
        if any(_takes_time(behaviour, name) for name in run)
    }
    slots = replica_slots(flow, working, plan, behaviour)
    entrances = {region.name for region in regions(flow)}  # rows are distributed over replicas there
    result = []
    for names, replicas in runs:
        first, bundles = behaviour.of(names[0]), _bundles(plan, names, replicas)
        shares = plan.shares(names)
        # The threads of a replica take rows from the same queue. Replicas without shares share it.
        by_key = max(bundles) == 1 and (
            first.keys > 0 or (first.queue is Queue.REPLICA and flow[names[0]].kind is Kind.KEYED)
        )
        if len(set(bundles)) > 1 and not shares:
            shares = (1.0 / replicas,) * replicas
        own_shares = key_shares(first.keys, first.zipf, replicas, shares).tolist() if by_key or shares else ()
        result.append(
            SimulatedStation(
                operators=names,
                pipeline=pipeline_of[names[0]],
                bundles=bundles,
                slots=slots.get(names[0], ()),
                key_shares=tuple(own_shares),
                is_routed=bool(shares),
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


def _replica_threads(plan: Plan, run: Sequence[str], replicas: int) -> tuple[ReplicaThreads, ...]:
    return tuple({name: plan.bundles(name, replicas)[replica] for name in run} for replica in range(replicas))


def _bundles(plan: Plan, run: Sequence[str], replicas: int) -> tuple[int, ...]:
    """Return the threads of each replica of a station, which has as many as its operator with the most threads."""
    return tuple(map(max, zip(*(plan.bundles(name, replicas) for name in run), strict=True)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The threads of a station on one slot, and what they are like if they have the slot for themselves."""

    threads: int
    slowdown: float  # slowdown of each thread, relative to a thread alone
    core_share: float  # share of the slot's core that all threads use together
    thread_share: float  # share of the time of one thread, alone on the slot, in which it uses the core
    has_curve: bool  # whether all its work is measured


def _bundle(flow: Dataflow, behaviour: Behaviour, threads_of: Mapping[str, int]) -> Bundle:
    """Return the bundle of a station with these operators and threads on a slot.

    A row passes one operator after another. An operator with v visits takes v s of a thread alone on the slot. If it
    has n of the station's N threads, it takes N v s w(1) / w(n) by its curve w. N threads then process one row in the
    sum of v s w(1) / w(n) over the operators.
    """
    total = max(threads_of.values())
    alone_s = time_s = core_s = cpu_s = 0.0
    rows, has_curve = 1.0, True
    for name, threads in threads_of.items():
        own = behaviour.of(name)
        work_s = rows * own.service_s.mean
        rows *= behaviour.selectivity(flow, name).mean
        if work_s == 0.0:
            continue
        curve = _curve(name, own.curve)
        slower = _slowdown(curve, threads, own.cpu_share) * total / threads
        used = _core_share(curve, threads, own.cpu_share)
        alone_s, time_s = alone_s + work_s, time_s + work_s * slower
        core_s += work_s * slower * used
        cpu_s += work_s * own.cpu_share
        has_curve = has_curve and curve is not None
    if alone_s == 0.0:
        return Bundle(threads=total, slowdown=1.0, core_share=1.0, thread_share=1.0, has_curve=False)
    return Bundle(
        threads=total,
        slowdown=time_s / alone_s,
        core_share=core_s / time_s,
        thread_share=cpu_s / alone_s,
        has_curve=has_curve,
    )


def _slowdown(curve: Curve | None, threads: int, cpu_share: float) -> float:
    """Return how much slower each thread of one operator on a slot is: threads x rate(1) / rate(threads).

    Without a curve the threads share one core. `cpu_share` is the share of its time in which a thread needs it. The
    time on the core takes longer, the time in which a thread waits does not.

    >>> _slowdown(None, 3, 1.0)
    3.0
    >>> [round(_slowdown(None, 3, share), 6) for share in (0.0, 0.2, 0.5)]
    [1.0, 1.0, 1.5]
    """
    if curve is None:
        return 1.0 - cpu_share + cpu_share * core_stretch([cpu_share] * threads)
    return threads * curve.single.rows_per_s / curve.at(threads).rows_per_s


def _core_share(curve: Curve | None, threads: int, cpu_share: float) -> float:
    """Return the share of a slot's core that the threads of one operator use if they have the slot for themselves."""
    if curve is None:
        return min(1.0, threads * cpu_share)
    return min(1.0, curve.at(threads).cpu / 100.0)


def replica_slots(
    flow: Dataflow, working: Mapping[str, Sequence[ReplicaThreads]], plan: Plan, behaviour: Behaviour
) -> dict[str, tuple[ReplicaSlot, ...]]:
    """Assign the replicas of stations to slots. Return the slots by station, one entry per thread.

    The threads of a station on a slot are one bundle, which its own curve describes. Bundles that share a slot share
    its core, and nothing else. Shukla and Simmhan assume the same: they place bundles on a slot until their CPU adds
    up to 100%.

    Let a bundle alone on the slot use the share c of the core at its peak rate. Bundles with curves are slowed down
    only while their work needs more than the core: the factor is the sum of c x (share of their threads that work), if
    it exceeds 1. A slot with a task without a curve has the static model: all tasks are always busy, which is
    pessimistic.
    """
    order = [(name, threads) for name, replicas in working.items() for threads in replicas]
    places = _places(working, plan, behaviour)
    threads_on: dict[int, dict[str, Counter[str]]] = {}  # slot -> station -> operator -> threads
    for slot, (name, threads) in zip(places, order, strict=True):
        threads_on.setdefault(slot, {}).setdefault(name, Counter()).update(threads)
    bundles = {
        slot: {name: _bundle(flow, behaviour, threads) for name, threads in own.items()}
        for slot, own in threads_on.items()
    }
    stretch_of = {slot: _static_stretch(own.values()) for slot, own in bundles.items()}
    cores = behaviour.cluster.slots_per_executor if behaviour.cluster.pooled_cores else 1
    in_pool = Counter(slot // cores for slot, own in bundles.items() for _ in own)
    result: dict[str, list[ReplicaSlot]] = {name: [] for name in working}
    for slot, (name, threads) in zip(places, order, strict=True):
        bundle = bundles[slot][name]
        is_dynamic = in_pool[slot // cores] > 1 and stretch_of[slot] is None
        server = ReplicaSlot(
            executor=slot // behaviour.cluster.slots_per_executor,
            slowdown=_shared_slowdown(bundle, stretch_of[slot]),
            pool=slot // cores,
            core_share=bundle.core_share / bundle.threads / cores if is_dynamic else 0.0,
        )
        result[name] += [server] * max(threads.values())
    return {name: tuple(servers) for name, servers in result.items()}


def _static_stretch(bundles: Collection[Bundle]) -> float | None:
    """Return how much longer work on a core takes if all tasks of a slot are busy; None if all of them have curves."""
    if all(bundle.has_curve for bundle in bundles):
        return None
    shares: list[float] = []
    for bundle in bundles:
        shares += [bundle.core_share] if bundle.has_curve else [bundle.thread_share] * bundle.threads
    return core_stretch(shares)


def _shared_slowdown(bundle: Bundle, stretch: float | None) -> float:
    if stretch is None:
        return bundle.slowdown
    if bundle.has_curve:
        return bundle.slowdown * (1.0 - bundle.core_share + bundle.core_share * stretch)
    return 1.0 - bundle.thread_share + bundle.thread_share * stretch


def _places(working: Mapping[str, Sequence[ReplicaThreads]], plan: Plan, behaviour: Behaviour) -> list[int]:
    """Return the slot of each replica. Each group has slots of its own, behind those for the operators without one."""
    group_of = plan.group_of
    strategy = PLACEMENTS[behaviour.cluster.placement]
    first: dict[str | None, int] = {None: 0}
    slots_of: dict[str | None, int] = {None: plan.slots - plan.group_slots}
    for name, group in plan.groups.items():
        first[name], slots_of[name] = sum(slots_of.values()), group.slots
    places: dict[str, Sequence[int]] = dict(behaviour.cluster.places)  # by station
    for group_name, slots in slots_of.items():
        counts = [
            (name, len(replicas))
            for name, replicas in working.items()
            if name not in places and _group(replicas[0], group_of) == group_name
        ]
        placed = iter(strategy(counts, slots) if counts else [])
        for name, replicas in counts:
            places[name] = [first[group_name] + next(placed) for _ in range(replicas)]
    for name, own in working.items():
        if len(places[name]) != len(own):
            raise BehaviourError(
                f"The behaviour has {len(places[name])} places for '{name}', which has {len(own)} replicas; give "
                "the slot of each replica."
            )
    return [slot for name in working for slot in places[name]]


def _group(operators: Iterable[str], group_of: Mapping[str, str]) -> str | None:
    """Return the group of the first operator that has one, which is the group of the station."""
    return next((group_of[name] for name in operators if name in group_of), None)


def paces(flow: Dataflow, plan: Plan, behaviour: Behaviour, station: SimulatedStation) -> list[float]:
    """Return the time of each replica that has a slot for itself, relative to the same work with one thread."""
    own = _replica_threads(plan, station.operators, len(station.bundles))
    return [bundle.slowdown / bundle.threads for bundle in (_bundle(flow, behaviour, threads) for threads in own)]


def _curve(operator: str, points: Mapping[str, CurvePoint]) -> Curve | None:
    if not points:
        return None
    if not all(threads.isdigit() for threads in points):
        raise BehaviourError(
            f"The curve of '{operator}' has the keys {list(points)}; they must be thread counts such as '1' and '4'."
        )
    return curve_from_points({int(threads): point for threads, point in points.items()})


def key_shares(keys: int, zipf: float, replicas: int, shares: Sequence[float] = ()) -> np.ndarray:
    """Return the share of the rows of each replica: key i has the weight i^-zipf, and a hash assigns it to a replica.

    `shares` are the shares of the keys of each replica, or of the rows without keys; empty: equal shares. Keys after
    the first million are so many that a hash spreads them by these shares. The sum of their weights is that of the
    midpoint rule: the integral of x^-zipf from K + 1/2 to N + 1/2.

    >>> key_shares(keys=0, zipf=0.0, replicas=2).tolist()
    [0.5, 0.5]
    """
    wanted = np.array(shares) if shares else np.full(replicas, 1.0 / replicas)
    if keys <= 0:
        return wanted
    hashed_keys = min(keys, _HASHED_KEYS)
    weights = np.arange(1, hashed_keys + 1, dtype=float) ** -zipf
    hashed = np.arange(1, hashed_keys + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    if shares:
        group = (hashed >> np.uint64(32)) % np.uint64(_KEY_GROUPS)
        replica = np.searchsorted(np.cumsum(wanted)[:-1] * _KEY_GROUPS, group, side="right")
    else:
        replica = ((hashed >> np.uint64(32)) % np.uint64(replicas)).astype(np.int64)
    spread = _weight_between(hashed_keys + 0.5, keys + 0.5, zipf)
    counts = np.bincount(replica, weights=weights, minlength=replicas) + spread * wanted
    return np.asarray(counts / (weights.sum() + spread))


def _weight_between(low: float, high: float, zipf: float) -> float:
    """Return the integral of x^-zipf."""
    if zipf == 1.0:
        return math.log(high / low)
    return float((high ** (1.0 - zipf) - low ** (1.0 - zipf)) / (1.0 - zipf))
