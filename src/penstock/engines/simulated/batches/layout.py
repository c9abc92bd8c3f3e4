"""The arrays of the micro-batch loop that follow from the plan.

A query is a pipeline of the plan, and its stages are its stations. Every stream of the dataflow has a log of its own,
so logs survive a change of plan: a channel whose cut is removed is read to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.batch_size import FIRST_BATCH_ROWS
from penstock.engines.simulated.batches.records import (
    BY_KEY,
    BY_SHARE,
    HALTED,
    IN_TURN,
    LOG,
    NOT_A_SOURCE,
    OUT,
    QUERY,
    STAGE,
    QueryLayout,
)
from penstock.engines.simulated.behaviour import UNLIMITED_ROWS, Behaviour
from penstock.engines.simulated.compiled.records import NONE, Records
from penstock.engines.simulated.stations import SimulatedStation, paces, stations
from penstock.plan import Pipeline, Plan, pipelines

LogIndex = dict[tuple[str, str], int]  # (producer, reader) -> log; the log of a source is (source, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """The queries of a plan: names for the simulation, arrays for the compiled loop."""

    pipelines: tuple[Pipeline, ...]  # by query
    query_of: np.ndarray  # by operator
    layout: QueryLayout


def log_index(flow: Dataflow) -> LogIndex:
    sources = [(operator.name, operator.name) for operator in flow.operators if operator.kind is Kind.SOURCE]
    streams = [(name, operator.name) for operator in flow.operators for name in operator.inputs]
    return {key: i for i, key in enumerate([*sources, *streams])}


def empty_logs(flow: Dataflow) -> Records:
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    logs = np.zeros(len(log_index(flow)), LOG)
    logs["operator"] = [index[reader] for _, reader in log_index(flow)]
    logs["port"] = [0 if name == reader else flow[reader].inputs.index(name) for name, reader in log_index(flow)]
    return logs


def query_plan(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> QueryPlan:
    """Return the arrays of the plan's queries. All queries are halted."""
    builder = _Builder(flow, plan, behaviour)
    queries = pipelines(flow, plan)
    records = np.zeros(len(queries), QUERY)
    records["phase"] = HALTED
    records["due_s"] = np.inf
    records["limit_rows"] = FIRST_BATCH_ROWS if behaviour.batch.target_s is not None else UNLIMITED_ROWS
    records["stretch"] = 1.0
    query_of = np.zeros(len(flow.operators), np.int64)
    for number, pipeline in enumerate(queries):
        query_of[[builder.index[name] for name in pipeline.operators]] = number
        builder.add(pipeline, records[number])
    ready = records["ready_capacity"]
    records["ready_first"] = np.cumsum(ready) - ready
    return QueryPlan(
        pipelines=queries,
        query_of=query_of,
        layout=QueryLayout(
            queries=records,
            stages=np.array(builder.stages, STAGE),
            chain=np.array(builder.chain, np.int64),
            shares=np.array(builder.shares, float),
            paces=np.array(builder.paces, float),
            threads=np.array(builder.threads, np.int64),
            reads=np.array(builder.reads, np.int64),
            outs=np.array(builder.outs, OUT),
            readers=builder.readers,
            is_sink=np.array([operator.kind is Kind.SINK for operator in flow.operators]),
            ports=np.array([_port_of(flow, operator.name) for operator in flow.operators], np.int64),
        ),
    )


def _port_of(flow: Dataflow, name: str) -> int:
    """Return which input of its first consumer an operator is. An operator within a query has no other consumer."""
    consumers = flow.consumers(name)
    return consumers[0].inputs.index(name) if consumers else 0


class _Builder:
    """Collects the stages, logs and streams of the queries, one query after another."""

    def __init__(self, flow: Dataflow, plan: Plan, behaviour: Behaviour) -> None:
        self._flow = flow
        self._plan = plan
        self._behaviour = behaviour
        self._logs = log_index(flow)
        self._stations: dict[str, list[SimulatedStation]] = {}  # stages of each pipeline
        for station in stations(flow, plan, behaviour):
            own = self._stations.setdefault(station.pipeline, [])
            if flow[station.name].kind is not Kind.SOURCE:
                own.append(station)
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.stages: list[tuple[float, ...]] = []
        self.chain: list[int] = []
        self.shares: list[float] = []
        self.paces: list[float] = []
        self.threads: list[int] = []
        self.reads: list[int] = []
        self.outs: list[tuple[int, float]] = []
        self.readers = np.full(len(self.index), NOT_A_SOURCE, np.int64)

    def add(self, pipeline: Pipeline, record: np.void) -> None:
        """Add one query and fill in its QUERY record."""
        last = self._flow[pipeline.output]
        record["last_operator"], record["is_sink"] = self.index[last.name], last.kind is Kind.SINK
        self._add_stages(pipeline, record)
        self._add_inputs(pipeline, record)
        record["first_out"] = len(self.outs)
        if last.kind is not Kind.SINK:
            routes = self._behaviour.of(last.name).routes
            record["is_routed"] = bool(routes)
            share = 0.0
            for consumer in self._flow.consumers(last.name):
                share += routes.get(consumer.name, 0.0)
                self.outs.append((self._logs[last.name, consumer.name], share))
        record["outs"] = len(self.outs) - record["first_out"]

    def _add_stages(self, pipeline: Pipeline, record: np.void) -> None:
        own = self._stations[pipeline.name]
        record["first_stage"], record["stages"] = len(self.stages), len(own)
        record["ready_capacity"] = max([_tasks(station) for station in own], default=1)
        for station in own:
            end = station.operators[-1]
            next_operator = self.index[self._flow.consumers(end)[0].name] if end != pipeline.output else NONE
            distribution = BY_KEY if station.key_shares else IN_TURN
            if station.is_routed and self._behaviour.of(station.name).keys == 0:
                distribution = BY_SHARE
            chain = (len(self.chain), len(station.operators))
            task_first = len(self.paces)
            self.stages.append((*chain, _tasks(station), distribution, len(self.shares), 0, next_operator, task_first))
            self.threads += station.bundles
            self.paces += paces(self._flow, self._plan, self._behaviour, station)
            self.chain += [self.index[name] for name in station.operators]
            self.shares += np.cumsum(station.key_shares).tolist()

    def _add_inputs(self, pipeline: Pipeline, record: np.void) -> None:
        record["first_log"] = len(self.reads)
        self.reads += [log for (_, reader), log in self._logs.items() if reader in pipeline.operators]
        record["logs"] = len(self.reads) - record["first_log"]
        for name in pipeline.operators:
            if self._flow[name].kind is Kind.SOURCE:
                is_cut = name in self._plan.cuts
                self.readers[self.index[name]] = NONE if is_cut else self.index[self._flow.consumers(name)[0].name]


def _tasks(station: SimulatedStation) -> int:
    """Return the tasks of a stage: the threads of a replica are in one task."""
    return len(station.bundles)
