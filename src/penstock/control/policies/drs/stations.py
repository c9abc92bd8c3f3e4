"""Regions under a load as stations of a queueing network: what DRS plans on.

Operator-at-a-time: each region is an M/M/k or GI/G/k station, E[T] = sum_i visits_i E[T_i](k_i).

Micro-batch: each query is one station, seen from outside. Of each external row it does

    c = sum over its operators of visits x seconds a row,     D* = (a + s b k) / (1 - lambda c / k)

seconds of work in s stages, one a region, and a row stays 1.5 D* in each query on its way, whatever it is split into
there. `a` comes from the batches themselves: what is left of a measured batch without its work, without what the
slowest task of a stage takes longer than the others, and without b for each replica of each stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from penstock.control.demand import Demand, RegionLoad, traffic_of
from penstock.control.policies.drs.learning import BatchOverhead, Query
from penstock.control.policy import Situation
from penstock.models.microbatch import MicroBatch, expected_maximum
from penstock.models.network import propagated_scv
from penstock.models.queueing import GIGk, MMk
from penstock.models.queueing.errors import UnstableError
from penstock.models.queueing.station import StationModel
from penstock.planning.processors import OperatorNetwork, OperatorStation

Queue = Literal["mmk", "gigk"]
_LEAST_BATCH_S = 0.02  # no query on Spark was seen to finish an empty batch in less


@dataclass(frozen=True, slots=True, kw_only=True)
class StationNetwork:
    """A workload for the processor planner, and how its counts become replicas of a plan."""

    workload: OperatorNetwork
    members: dict[str, tuple[str, ...]]  # station -> the regions that have its count
    others: dict[str, int]  # regions without known work -> replicas
    cuts: frozenset[str]  # more than the plan has

    @property
    def reserved(self) -> int:
        """Slots that are not for the planner to give."""
        return sum(self.others.values())

    def replicas(self, counts: Sequence[int]) -> dict[str, int]:
        names = (operator.name for operator in self.workload.operators)
        by_station = dict(zip(names, counts, strict=True))
        given = {region: by_station[station] for station, regions in self.members.items() for region in regions}
        return given | self.others

    def at_load(self, times: float) -> StationNetwork:
        """The same under so many times the rows."""
        if times == 1.0:  # as it is mostly
            return self
        operators = tuple(
            msgspec.structs.replace(one, station=one.station.at_rate(one.station.arrival_per_s * times))
            for one in self.workload.operators
        )
        external = self.workload.external_per_s * times
        return replace(self, workload=replace(self.workload, external_per_s=external, operators=operators))

    def predicted_s(self, counts: Sequence[int], quantile: float | None) -> float | None:
        """The latency under these counts; None where they do not keep up."""
        try:
            if quantile is None:
                return self.workload.mean_s(counts)
            return self.workload.latency(counts).quantile_s(quantile)
        except UnstableError:
            return None


def operator_stations(situation: Situation, demand: Demand, *, queue: Queue) -> StationNetwork:
    """One station a region."""
    arrival_scv = _arrival_scv(situation, demand) if queue == "gigk" else {}
    operators = []
    for name, load in demand.loads.items():
        station: StationModel
        if queue == "mmk":
            station = MMk(arrival_per_s=load.arrival_per_s, service_per_s=1.0 / load.row_s)
        else:
            station = GIGk(
                arrival_per_s=load.arrival_per_s,
                service_per_s=1.0 / load.row_s,
                arrival_scv=arrival_scv[name],
                service_scv=_or_one(load.service_scv),
            )
        operators.append(OperatorStation(name=name, station=station, most=load.most))
    return StationNetwork(
        workload=OperatorNetwork(external_per_s=demand.external_per_s, operators=tuple(operators)),
        members={name: (name,) for name in demand.loads},
        others=dict.fromkeys(demand.idle, 1),
        cuts=frozenset(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCosts:
    """What batches take beside the work of their rows."""

    overheads: Mapping[Query, BatchOverhead]
    replica_s: float  # b
    batch_s: float  # a of queries that made no batch yet

    def fixed_s(self, query: Query) -> float:
        """a"""
        overhead = self.overheads.get(query)
        if overhead is None:
            return self.batch_s
        return max(_LEAST_BATCH_S, overhead.seconds - self.replica_s * overhead.tasks)


def query_stations(situation: Situation, demand: Demand, cuts: frozenset[str], costs: QueryCosts) -> StationNetwork:
    """One station a query, were the plan cut in these places too."""
    topology = situation.topology
    operators, members = [], {}
    whole = {region: query for query in topology.queries(situation.plan.cuts) for region in query}
    single = {region.name for region in topology.regions if not region.replicable}
    for query in topology.queries(situation.plan.cuts | cuts):
        loads = [demand.loads[name] for name in query if name in demand.loads]
        name = query[0]
        station = MicroBatch(
            arrival_per_s=demand.external_per_s,
            # A query that comes of splitting another has the fixed part of that one, until it has batches of its own.
            batch_s=costs.fixed_s(whole[query[0]]),
            row_s=sum([load.work for load in loads]) / demand.external_per_s,
            replica_s=costs.replica_s * len(query),
            # No bound on slots: the planner's budget is one, and what is needed has none.
            spread_s=sum([_spread_s(load, load.arrival_per_s / demand.external_per_s) for load in loads]),
        )
        operators.append(OperatorStation(name=name, station=station, most=None if single.isdisjoint(query) else 1))
        members[name] = query
    return StationNetwork(
        workload=OperatorNetwork(external_per_s=demand.external_per_s, operators=tuple(operators)),
        members=members,
        others={},
        cuts=cuts,
    )


def worthwhile_cuts(situation: Situation, demand: Demand, *, worth_slots: float) -> frozenset[str]:
    """Cuts between regions that each have work for `worth_slots` slots or more: such regions get a query each."""
    topology = situation.topology
    exits = {region.name: region.operators[-1] for region in topology.regions}
    heavy = {name for name, load in demand.loads.items() if load.work >= worth_slots}
    if len(heavy) < 2:
        return frozenset()
    into: dict[str, list[str]] = {}
    for before, after in topology.streams:
        into.setdefault(after, []).append(before)
    holds: dict[str, bool] = {}  # region -> whether its query has a heavy one, up to and with it
    found: set[str] = set()
    for region in topology.regions:
        together = [one for one in into[region.name] if one in holds and exits[one] not in situation.plan.cuts]
        if region.name in heavy:
            found |= {exits[one] for one in together if holds[one]}
        holds[region.name] = region.name in heavy or any(holds[one] for one in together)
    return frozenset(found)


def present_counts(stations: StationNetwork, situation: Situation, demand: Demand) -> list[int]:
    """What the stations have now; where regions of a query differ, the count that does their work in the same time."""
    counts = []
    # More replicas than slots take turns.
    at_once = {name: min(count, situation.plan.slots) for name, count in situation.plan.replicas.items()}
    for operator in stations.workload.operators:
        regions = stations.members[operator.name]
        replicas = [at_once[name] for name in regions]
        if min(replicas) == max(replicas):
            counts.append(replicas[0])
            continue
        works = [demand.loads[name].work if name in demand.loads else 0.0 for name in regions]
        if not sum(works):
            counts.append(max(replicas))
            continue
        time = sum(work / count for work, count in zip(works, replicas, strict=True))
        counts.append(max(1, round(sum(works) / time)))
    return counts


def batch_overheads(situation: Situation, demand: Demand) -> dict[Query, BatchOverhead]:
    """a + b x: what a query's batches took beside the work of their rows, for those that made any."""
    window = situation.window
    assert window is not None
    plan = situation.plan
    rows_in = {one.operator: one.rows_in or 0 for one in window.operators}
    work_s = {one.operator: (one.rows_in or 0) * (one.seconds_per_row or 0.0) for one in window.operators}
    batches_of = {name: one for one in window.pipelines if one.batches and one.batch_s for name in one.operators}
    inside = {region.name: region.operators for region in situation.topology.regions}
    found: dict[Query, BatchOverhead] = {}
    for query in situation.topology.queries(plan.cuts):
        names = [name for region in query for name in inside[region]]
        batches = {one.pipeline: one for name in names if (one := batches_of.get(name)) is not None}.values()
        if not batches:
            continue
        # A region cut inside has several queries, one after another: their batches' times add up.
        rest_s = sum([one.batch_s or 0.0 for one in batches])
        made = max([one.batches for one in batches])
        tasks = 0
        for region in query:
            tasks += plan.replicas[region]
            at_once = min(plan.replicas[region], plan.slots)
            rest_s -= sum([work_s.get(name, 0.0) for name in inside[region]]) / made / at_once
            if (load := demand.loads.get(region)) is not None:
                rest_s -= expected_maximum(at_once) * _spread_s(load, rows_in.get(region, 0) / made / at_once)
        found[query] = BatchOverhead(tasks, max(0.0, rest_s))
    return found


def _spread_s(load: RegionLoad, rows: float) -> float:
    """Standard deviation of the work of so many rows; mostly nobody measured it."""
    return load.spread_s * math.sqrt(rows) if load.service_scv else 0.0


def _arrival_scv(situation: Situation, demand: Demand) -> dict[str, float]:
    """As measured; where it was not, propagated along the streams."""
    loads = demand.loads
    if all(load.arrival_scv is not None for load in loads.values()):
        return {name: _or_one(load.arrival_scv) for name, load in loads.items()}
    traffic = traffic_of(situation.topology, demand.entering, demand.gains)
    names = traffic.names
    propagated = propagated_scv(
        traffic,
        service_scv={name: _or_one(loads[name].service_scv) if name in loads else 1.0 for name in names},
        utilisation={name: loads[name].utilisation if name in loads else 0.0 for name in names},
        servers={name: loads[name].replicas if name in loads else 1 for name in names},
    )
    return {name: _or_one(load.arrival_scv, propagated[name]) for name, load in loads.items()}


def _or_one(scv: float | None, otherwise: float = 1.0) -> float:
    return otherwise if scv is None else scv
