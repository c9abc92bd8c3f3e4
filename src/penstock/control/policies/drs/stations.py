"""The queueing network that DRS plans on: regions or queries as stations.

Row by row: each region is an M/M/k or GI/G/k station, E[T] = sum_i visits_i E[T_i](k_i).

Micro-batch: each query is one station. For each external row it works

    c = sum over its operators of visits x seconds per row,     D* = (a + s b k) / (1 - lambda c / k)

seconds in s stages, one per region. A row stays 1.5 D* in each query on its path. The fixed time `a` is what remains of
a measured batch after subtracting its work, the extra time of the slowest task of each stage, and b per replica of each
stage.
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

Queue = Literal["mmk", "gigk"]  # model of a station; micro-batch engines have a model of their own by default
_LEAST_BATCH_S = 0.02  # the shortest empty batch that was measured on Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class StationNetwork:
    """The stations for the processor planner, and the mapping from its counts to the replicas of a plan."""

    workload: OperatorNetwork
    members: dict[str, tuple[str, ...]]  # station -> regions that get its count
    others: dict[str, int]  # replicas of regions without known work
    cuts: frozenset[str]  # cuts in addition to those of the plan

    @property
    def reserved(self) -> int:
        """Return the slots that the planner cannot assign."""
        return sum(self.others.values())

    def replicas(self, counts: Sequence[int]) -> dict[str, int]:
        names = (operator.name for operator in self.workload.operators)
        by_station = dict(zip(names, counts, strict=True))
        given = {region: by_station[station] for station, regions in self.members.items() for region in regions}
        return given | self.others

    def at_load(self, times: float) -> StationNetwork:
        """Return the network under a multiple of the load."""
        if times == 1.0:
            return self
        operators = tuple(
            msgspec.structs.replace(operator, station=operator.station.at_rate(operator.station.arrival_per_s * times))
            for operator in self.workload.operators
        )
        external = self.workload.external_per_s * times
        return replace(self, workload=replace(self.workload, external_per_s=external, operators=operators))

    def predicted_s(self, counts: Sequence[int], quantile: float | None) -> float | None:
        """Return the latency with these counts; None if they do not keep up."""
        try:
            if quantile is None:
                return self.workload.mean_s(counts)
            return self.workload.latency(counts).quantile_s(quantile)
        except UnstableError:
            return None


def operator_stations(situation: Situation, demand: Demand, *, queue: Queue) -> StationNetwork:
    """Return one station per region."""
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
        operators.append(OperatorStation(name=name, station=station, max_processors=load.max_replicas))
    return StationNetwork(
        workload=OperatorNetwork(external_per_s=demand.external_per_s, operators=tuple(operators)),
        members={name: (name,) for name in demand.loads},
        others=dict.fromkeys(demand.idle, 1),
        cuts=frozenset(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCosts:
    """The time of batches besides the work of their rows."""

    overheads: Mapping[Query, BatchOverhead]
    replica_s: float  # b
    batch_s: float  # a, of queries that have made no batch yet

    def fixed_s(self, query: Query) -> float:
        """Return a."""
        overhead = self.overheads.get(query)
        if overhead is None:
            return self.batch_s
        return max(_LEAST_BATCH_S, overhead.seconds - self.replica_s * overhead.tasks)


def query_stations(
    situation: Situation, demand: Demand, cuts: frozenset[str], costs: QueryCosts, *, queue: Queue | None = None
) -> StationNetwork:
    """Return one station per query, with additional cuts: a micro-batch station, or M/M/k or GI/G/k if requested.

    A queue ignores the fixed time of batches. The correction that DRS learns from measured latencies includes it.
    """
    topology = situation.topology
    operators, members = [], {}
    whole = {region: query for query in topology.queries(situation.plan.cuts) for region in query}
    single = {region.name for region in topology.regions if not region.replicable}
    for query in topology.queries(situation.plan.cuts | cuts):
        loads = [demand.loads[name] for name in query if name in demand.loads]
        name = query[0]
        row_s = sum([load.work for load in loads]) / demand.external_per_s
        station: StationModel
        if queue is None or row_s == 0:
            station = MicroBatch(
                arrival_per_s=demand.external_per_s,
                # A query that results from a split has the fixed time of the original query until it has own batches.
                batch_s=costs.fixed_s(whole[query[0]]),
                row_s=row_s,
                replica_s=costs.replica_s * len(query),
                # No slot limit here: the planner has a budget, and the required slots have no limit.
                spread_s=sum([_spread_s(load, load.arrival_per_s / demand.external_per_s) for load in loads]),
            )
        elif queue == "mmk":
            station = MMk(arrival_per_s=demand.external_per_s, service_per_s=1.0 / row_s)
        else:
            station = GIGk(
                arrival_per_s=demand.external_per_s,
                service_per_s=1.0 / row_s,
                arrival_scv=_source_scv(situation),
                service_scv=_query_scv(loads, demand.external_per_s, row_s),
            )
        operators.append(
            OperatorStation(name=name, station=station, max_processors=None if single.isdisjoint(query) else 1)
        )
        members[name] = query
    return StationNetwork(
        workload=OperatorNetwork(external_per_s=demand.external_per_s, operators=tuple(operators)),
        members=members,
        others={},
        cuts=cuts,
    )


def worthwhile_cuts(situation: Situation, demand: Demand, *, worth_slots: float) -> frozenset[str]:
    """Return the cuts that give each region with work for at least `worth_slots` slots a separate query."""
    topology = situation.topology
    exits = {region.name: region.operators[-1] for region in topology.regions}
    heavy = {name for name, load in demand.loads.items() if load.work >= worth_slots}
    if len(heavy) < 2:
        return frozenset()
    into: dict[str, list[str]] = {}
    for before, after in topology.streams:
        into.setdefault(after, []).append(before)
    holds: dict[str, bool] = {}  # region -> whether its query has a heavy region up to here
    cuts: set[str] = set()
    for region in topology.regions:
        together = [name for name in into[region.name] if name in holds and exits[name] not in situation.plan.cuts]
        if region.name in heavy:
            cuts |= {exits[name] for name in together if holds[name]}
        holds[region.name] = region.name in heavy or any(holds[name] for name in together)
    return frozenset(cuts)


def present_counts(stations: StationNetwork, situation: Situation, demand: Demand) -> list[int]:
    """Return the current count of each station.

    If the regions of a query differ, it is the count that does their work in the same time.
    """
    counts = []
    # Replicas beyond the slots take turns.
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
    """Return a + b x of each query that made batches: the batch time besides the work of the rows."""
    window = situation.window
    assert window is not None
    plan = situation.plan
    rows_in = {operator.operator: operator.rows_in or 0 for operator in window.operators}
    work_s = {
        operator.operator: (operator.rows_in or 0) * (operator.seconds_per_row or 0.0) for operator in window.operators
    }
    batches_of = {
        name: pipeline
        for pipeline in window.pipelines
        if pipeline.batches and pipeline.batch_s
        for name in pipeline.operators
    }
    inside = {region.name: region.operators for region in situation.topology.regions}
    overheads: dict[Query, BatchOverhead] = {}
    for query in situation.topology.queries(plan.cuts):
        names = [name for region in query for name in inside[region]]
        batches = {batch.pipeline: batch for name in names if (batch := batches_of.get(name)) is not None}.values()
        if not batches:
            continue
        # A region that is cut inside has several consecutive queries; their batch times add up.
        rest_s = sum([batch.batch_s or 0.0 for batch in batches])
        made = max([batch.batches for batch in batches])
        tasks = 0
        for region in query:
            tasks += plan.replicas[region]
            at_once = min(plan.replicas[region], plan.slots)
            rest_s -= sum([work_s.get(name, 0.0) for name in inside[region]]) / made / at_once
            if (load := demand.loads.get(region)) is not None:
                rest_s -= expected_maximum(at_once) * _spread_s(load, rows_in.get(region, 0) / made / at_once)
        overheads[query] = BatchOverhead(tasks, max(0.0, rest_s))
    return overheads


def _spread_s(load: RegionLoad, rows: float) -> float:
    """Return the standard deviation of the work of `rows` rows; 0 if it was not measured."""
    return load.spread_s * math.sqrt(rows) if load.service_scv else 0.0


def _source_scv(situation: Situation) -> float:
    """Return the measured SCV of the arrivals at the sources, weighted by their rates; 1 if it was not measured."""
    assert situation.window is not None
    known = [
        (operator.arrival_scv, operator.input_rows_per_s)
        for operator in situation.window.operators
        if operator.operator in situation.topology.sources and operator.arrival_scv is not None
    ]
    total = sum(rate or 0.0 for _, rate in known)
    return sum(scv * (rate or 0.0) for scv, rate in known) / total if total else 1.0


def _query_scv(loads: Sequence[RegionLoad], external_per_s: float, row_s: float) -> float:
    """Return the SCV of the work of a query for an external row; 1 if a part of it was not measured."""
    if any(load.service_scv is None for load in loads):
        return 1.0
    return sum(load.arrival_per_s / external_per_s * load.spread_s**2 for load in loads) / row_s**2


def _arrival_scv(situation: Situation, demand: Demand) -> dict[str, float]:
    """Return the measured SCV of arrivals, or the propagated one where it was not measured."""
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
