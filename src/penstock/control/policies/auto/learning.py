"""Build the networks that the policy plans on from a situation and the memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from penstock.control.demand import Demand, demand_of
from penstock.control.policies.auto.learned import BatchSums, Learned
from penstock.control.policies.auto.network import Floats, QueueNetwork
from penstock.control.policy import Hold, Situation
from penstock.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.measure.window import Window
from penstock.plan.pipelines import pipelines
from penstock.plan.plan import Plan

_TASK_S = 0.02  # seconds that a task adds to a batch, until plans with different numbers of tasks show it
_TASK_WEIGHT = 1.0  # weight of this estimate, in tasks^2
_FIXED_S = 0.1  # fixed time of a batch of a query that has made none
_LARGEST_SCV = 20.0
_BATCH_S = 900.0  # time in which old batches lose their weight


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedDemand:
    """The learned demand per external row."""

    situation: Situation  # its window has the learned costs
    demand: Demand
    rate_per_s: float  # rate of the demand

    @property
    def work_per_row(self) -> float:
        """Return the busy seconds per external row."""
        return math.fsum(load.work for load in self.demand.loads.values()) / self.rate_per_s


def measured_demand(situation: Situation, learned: Learned) -> LearnedDemand | Hold:
    """Return the demand with the learned costs, or the Hold for missing metrics or no input."""
    assert situation.window is not None
    known = replace(situation, window=learned.with_learned(situation.window))
    demand = demand_of(known)
    if isinstance(demand, Hold):
        return demand
    return LearnedDemand(situation=known, demand=demand, rate_per_s=demand.external_per_s)


def networks(measured: LearnedDemand, learned: Learned, present: QueueNetwork) -> tuple[QueueNetwork, ...]:
    """Return the network of the current cuts, and in micro-batches those of fewer and of more cuts.

    Their plans may use all slots that can be acquired.
    """
    situation = measured.situation
    topology, plan = situation.topology, situation.plan
    if not situation.micro_batch:
        return (_with_all_slots(present, situation),)
    ends = {topology.last_operator(before) for before, _ in topology.streams if before not in topology.sources}
    most = frozenset((ends | plan.cuts) - topology.forbidden_cuts)
    fewest = plan.cuts - topology.removable_cuts(plan)
    others = [cuts for cuts in dict.fromkeys([fewest, most]) if cuts != plan.cuts]
    different = [present, *(network_of(measured, learned, cuts) for cuts in others)]
    return tuple(_with_all_slots(network, situation) for network in different)


def _with_all_slots(network: QueueNetwork, situation: Situation) -> QueueNetwork:
    return replace(network, available_slots=max(situation.plan.slots, situation.max_slots))


def network_of(measured: LearnedDemand, learned: Learned, cuts: frozenset[str]) -> QueueNetwork:
    """Return the network of plans with these cuts."""
    situation = measured.situation
    topology = situation.topology
    if situation.micro_batch:
        members = topology.queries(cuts)
        stations = tuple(
            tuple(name for name in query.operators if topology.operators[name].kind is not Kind.SOURCE)
            for query in pipelines(topology.flow, situation.plan.replace(cuts=cuts))
        )
        stations = tuple(station for station in stations if station)
    else:
        members = tuple((region.name,) for region in topology.regions)
        stations = tuple(part for region in topology.regions for part in _parts(region.operators, cuts))
    node_of = {region: node for node, regions in enumerate(members) for region in regions}
    region_of = {name: region.name for region in topology.regions for name in region.operators}
    flows = _flows(measured, stations)
    single = {region.name for region in topology.regions if not region.replicable}
    work = flows.work_s
    node = np.array([node_of[region_of[station[0]]] for station in stations])
    idle = np.ones(len(members), bool)
    idle[node[work > 0.0]] = False
    limit = np.where([idle[at] or not single.isdisjoint(regions) for at, regions in enumerate(members)], 1.0, np.inf)
    regions_of = [{region_of[name] for name in station} for station in stations]
    network = QueueNetwork(
        names=tuple(regions[0] for regions in members),
        members=tuple(members),
        stations=stations,
        node=node,
        cuts=cuts,
        micro_batch=situation.micro_batch,
        available_slots=situation.plan.slots,
        weight=flows.weight,
        visits=flows.inflow,
        first_visits=flows.first_rows,
        row_s=work if situation.micro_batch else work / np.maximum(flows.inflow, 1e-12),
        error=_errors(learned, topology.flow, stations),
        service_scv=flows.service_scv,
        arrival_scv=np.ones(len(stations)) if situation.micro_batch else flows.arrival_scv,
        limit=limit,
        width=_width(len(members), [{node_of[region] for region in own} for own in regions_of]),
        hot_share=np.array([max(learned.hot.get(name, 0.0) for name in station) for station in stations]),
        fixed_s=np.zeros(len(stations)),
        stages=np.array([len(regions - single) for regions in regions_of], float),
        single_tasks=np.array([len(regions & single) for regions in regions_of], float),
    )
    return _with_batch_times(network, learned) if situation.micro_batch else network


def _width(nodes: int, nodes_of: Sequence[set[int]]) -> Floats:
    """Return how many stations of each node run at the same time."""
    width = np.zeros(nodes)
    for own in nodes_of:
        width[list(own)] += 1.0
    return np.maximum(1.0, width)


def _parts(operators: tuple[str, ...], cuts: frozenset[str]) -> list[tuple[str, ...]]:
    parts: list[tuple[str, ...]] = []
    part: list[str] = []
    for name in operators:
        part.append(name)
        if name in cuts or name == operators[-1]:
            parts.append(tuple(part))
            part = []
    return parts


def placed_replicas(situation: Situation) -> int:
    """Return the replicas that share the slots row by row; a region that is cut inside has several per replica."""
    plan = situation.plan
    return sum(
        plan.replicas[region.name] * len(_parts(region.operators, plan.cuts))
        for region in situation.topology.regions
        if any(situation.topology.operators[name].kind is not Kind.SINK for name in region.operators)
    )


def present_counts(network: QueueNetwork, plan: Plan) -> Floats:
    """Return the counts of a plan; regions of a query with different replicas count as an average."""
    return np.array(
        [sum(min(plan.replicas[region], plan.slots) for region in node) / len(node) for node in network.members]
    )


def add_batches(learned: Learned, network: QueueNetwork, situation: Situation, window: Window) -> None:
    """Learn the batch times of the queries of the current plan."""
    span_s = window.end_s - window.start_s
    rows_in = {seen.operator: seen.rows_in or 0 for seen in window.operators}
    by_last = {query.operators[-1]: query for query in window.pipelines}
    counts = present_counts(network, situation.plan)[network.node]
    tasks = counts * network.stages + network.single_tasks
    for at, station in enumerate(network.stations):
        query = by_last.get(station[-1])
        read = rows_in.get(station[0], 0)
        if query is None or not query.batches or not query.batch_s or not read or network.first_visits[at] <= 0:
            continue
        rows = read / query.batches / float(network.first_visits[at])
        sums = learned.batches.setdefault(f"{station[0]}..{station[-1]} {round(float(tasks[at]))}", BatchSums())
        sums.add(float(query.batches), rows, float(query.batch_s), math.exp(-span_s / _BATCH_S))


def _with_batch_times(network: QueueNetwork, learned: Learned) -> QueueNetwork:
    """Return the network with the fixed time of the batches of each query, and with the cost of a task."""
    stage_tasks = np.maximum(1.0, network.stages + network.single_tasks)
    names = [f"{station[0]}..{station[-1]}" for station in network.stations]
    known_at = {name: at for at, name in enumerate(names)}
    lines: dict[str, dict[int, tuple[float, float, float]]] = {}  # query -> tasks -> (fixed s, slope ratio, batches)
    for key, sums in learned.batches.items():
        query, _, tasks = key.rpartition(" ")
        at = known_at.get(query)
        if sums.batches < 0.5:
            continue
        expected = 0.0 if at is None else float(network.row_s[at]) / max(1.0, int(tasks) / float(stage_tasks[at]))
        fixed, slope = sums.line(expected)
        lines.setdefault(query, {})[int(tasks)] = (fixed, slope / expected if expected > 0 else 1.0, sums.batches)
    task_s = _task_s(lines)
    fixed_s, hot = np.zeros(len(names)), network.hot_share.copy()
    others = [known[tasks][0] - task_s * tasks for known in lines.values() for tasks in known]
    for name, at in known_at.items():
        known = lines.get(name)
        if not known:  # a query that no plan had until now resembles the others
            fixed_s[at] = max(others, default=_FIXED_S)
            continue
        own = known
        most = max(own, key=lambda count: own[count][2])
        fixed_s[at] = own[most][0] - task_s * most
        replicas = max(1.0, most / float(stage_tasks[at]))
        # A steeper line than the work explains means that one replica gets more rows than the others.
        ratio = min(own[most][1], replicas)
        if replicas > 1.0 and ratio > 1.1:
            hot[at] = max(hot[at], (ratio - 1.0) / (replicas - 1.0))
    return replace(network, fixed_s=fixed_s, task_s=task_s, hot_share=hot)


def _task_s(lines: Mapping[str, Mapping[int, tuple[float, float, float]]]) -> float:
    """Return the seconds that a task adds to a batch: the slope of the fixed time over plans with different tasks."""
    covariance, variance = _TASK_WEIGHT * _TASK_S, _TASK_WEIGHT
    for known in lines.values():
        weights = np.array([min(batches, 30.0) for _, _, batches in known.values()])
        if len(known) < 2 or weights.sum() <= 0:
            continue
        x, y = np.array(list(known), float), np.array([fixed for fixed, _, _ in known.values()])
        x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
        weights = weights / weights.max()
        covariance += float((weights * x) @ y)
        variance += float((weights * x) @ x)
    return max(0.0, covariance / variance)


def _errors(learned: Learned, flow: Dataflow, stations: Sequence[tuple[str, ...]]) -> Floats:
    """Return the relative standard error of the work of each station, from its costs and the rows that reach it."""
    rows = {name: sums.selectivity_error**2 for name, sums in learned.operators.items()}
    before = _before(flow)
    squares = [
        _cost_error(learned, station) ** 2 + sum(rows.get(name, 0.0) for name in before[station[-1]])
        for station in stations
    ]
    return np.sqrt(squares)


def _cost_error(learned: Learned, station: tuple[str, ...]) -> float:
    sums = [learned.operators[name] for name in station if name in learned.operators]
    total = sum(own.busy_s for own in sums)
    return sum(own.busy_s * own.error for own in sums) / total if total > 0 else 0.0


def _before(flow: Dataflow) -> dict[str, set[str]]:
    """Return the upstream operators of each operator. In a loop, each operator is upstream of the others."""
    before: dict[str, set[str]] = {operator.name: set() for operator in flow.operators}
    size = -1
    while size != (size := sum(map(len, before.values()))):
        for operator in flow.operators:
            before[operator.name] = before[operator.name].union(
                operator.inputs, *(before[name] for name in operator.inputs)
            )
    return before


def weights(share_of: Floats, leaving: Floats) -> Floats:
    """Return u = (I - S)^-1 w of the module `network`.

    Without a loop, substitution from the last station on is enough. LAPACK would distribute this little work over
    threads, which wait for each other for seconds on a busy machine.

    >>> weights(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([0.25, 0.75])).tolist()
    [1.0, 0.75]
    """
    if np.tril(share_of).any():
        return np.asarray(np.linalg.solve(np.eye(len(leaving)) - share_of, leaving))
    weight = leaving.copy()
    for at in range(len(leaving) - 2, -1, -1):
        weight[at] += share_of[at, at + 1 :] @ weight[at + 1 :]
    return weight


class _Flows(NamedTuple):
    """The traffic of each station."""

    weight: Floats  # u of the module `network`
    inflow: Floats  # rows that enter per external row
    first_rows: Floats  # rows into the first operator per external row
    work_s: Floats  # seconds of work per external row
    service_scv: Floats
    arrival_scv: Floats


def _flows(measured: LearnedDemand, stations: tuple[tuple[str, ...], ...]) -> _Flows:
    situation, demand, rate = measured.situation, measured.demand, measured.rate_per_s
    assert situation.window is not None
    flow = situation.topology.flow
    seen = {operator.operator: operator for operator in situation.window.operators}
    rows_in: dict[str, float] = {}
    out = {name: per_s / rate for name, per_s in demand.entering.items()}
    for region in situation.topology.regions:
        rows = demand.arrivals[region.name] / rate
        for name in region.operators:
            rows_in[name] = rows
            rows = out[name] = rows * ((seen[name].selectivity or 0.0) if name in seen else 0.0)
    station_of = {name: at for at, station in enumerate(stations) for name in station}
    count = len(stations)
    moved, entering, leaving = np.zeros((count, count)), np.zeros(count), np.zeros(count)
    work, variance, arrival_scv = np.zeros(count), np.zeros(count), np.ones(count)
    for name, at in station_of.items():
        operator = flow[name]
        own = seen.get(name)
        if operator.kind is Kind.SINK:
            leaving[at] += rows_in[name]
        if own is not None and own.seconds_per_row:
            work[at] += rows_in[name] * own.seconds_per_row
            scv = 1.0 if own.service_scv is None else own.service_scv
            variance[at] += rows_in[name] * scv * own.seconds_per_row**2
        for before in operator.inputs:
            share = seen[before].share_for(name) if before in seen else 1.0
            if before not in station_of:
                entering[at] += out[before] * share
            elif station_of[before] != at or before in operator.feedback:
                moved[station_of[before], at] += out[before] * share
        if name == stations[at][0] and own is not None and own.arrival_scv is not None:
            arrival_scv[at] = own.arrival_scv
    inflow = moved.sum(axis=0) + entering
    leaving = leaving if leaving.sum() > 0 else inflow
    share_of = moved / np.maximum(inflow, 1e-12)
    weight = weights(share_of, leaving / max(float(leaving.sum()), 1e-12))
    per_row = work / np.maximum(inflow, 1e-12)
    service_scv = variance / np.maximum(inflow, 1e-12) / np.maximum(per_row, 1e-12) ** 2
    return _Flows(
        weight=np.maximum(0.0, weight),
        inflow=inflow,
        first_rows=np.array([rows_in[station[0]] for station in stations]),
        work_s=work,
        service_scv=np.clip(np.where(work > 0, service_scv, 1.0), 0.0, _LARGEST_SCV),
        arrival_scv=np.clip(arrival_scv, 0.1, _LARGEST_SCV),
    )
