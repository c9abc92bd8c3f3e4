"""Queries: what a dataflow under a plan is made of when it works in micro-batches, as arrays for the compiled loop.

A query is a pipeline of the plan; its stages are the runs of operators that the plan replicates as one. Logs go by
stream of the dataflow, and so stay when the plan changes: what a channel holds when its cut goes is read to its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.batch_records import HALTED, LOG, OUT, QUERY, STAGE
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.records import Records
from penstock.engines.simulated.stations import NO_BOUND, Station, stations
from penstock.plan import Pipeline, Plan, pipelines

FIRST_ROWS = 2_000  # of a query's first batch, where batches are sized by their time


class Queries(NamedTuple):
    pipelines: tuple[Pipeline, ...]
    queries: Records
    stages: Records
    chain: np.ndarray
    shares: np.ndarray
    reads: np.ndarray  # logs, query by query
    outs: Records  # where a query's rows go
    readers: np.ndarray  # by operator; of a source: who reads it within its query, or -1; else -2
    query_of: np.ndarray  # by operator


def log_index(flow: Dataflow) -> dict[tuple[str, str], int]:
    """(producer, reader) -> log; a source's own log is (source, source)."""
    sources = [(one.name, one.name) for one in flow.operators if one.kind is Kind.SOURCE]
    streams = [(name, operator.name) for operator in flow.operators for name in operator.inputs]
    return {key: i for i, key in enumerate([*sources, *streams])}


def empty_logs(flow: Dataflow) -> Records:
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    logs = np.zeros(len(log_index(flow)), LOG)
    logs["operator"] = [index[reader] for _, reader in log_index(flow)]
    return logs


def queries(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> Queries:
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    found = pipelines(flow, plan)
    in_pipeline: dict[str, list[Station]] = {pipeline.name: [] for pipeline in found}
    for station in stations(flow, plan, behaviour):
        if flow[station.name].kind is not Kind.SOURCE:
            in_pipeline[station.pipeline].append(station)
    logs = log_index(flow)
    readers = np.full(len(index), -2, np.int64)
    query_of = np.zeros(len(index), np.int64)
    records = np.zeros(len(found), QUERY)
    records["phase"] = HALTED
    records["due"] = np.inf
    records["cap"] = FIRST_ROWS if behaviour.batch.aim_s is not None else NO_BOUND
    stage_records: list[tuple[int, ...]] = []
    chain: list[int] = []
    shares: list[float] = []
    reads: list[int] = []
    outs: list[tuple[int, float]] = []
    room = 0
    for number, pipeline in enumerate(found):
        record = records[number]
        query_of[[index[name] for name in pipeline.operators]] = number
        last = flow[pipeline.output]
        record["exit"], record["sink"] = index[last.name], last.kind is Kind.SINK
        record["first_stage"], record["stages"] = len(stage_records), len(in_pipeline[pipeline.name])
        record["first_log"], record["first_out"] = len(reads), len(outs)
        record["ready_first"] = room
        record["ready_room"] = max([one.replicas for one in in_pipeline[pipeline.name]], default=1)
        room += record["ready_room"]
        for station in in_pipeline[pipeline.name]:
            end = station.operators[-1]
            follows = index[flow.consumers(end)[0].name] if end != last.name else -1
            by_share = int(bool(station.shares))
            size = len(station.operators)
            stage_records.append((len(chain), size, station.replicas, by_share, len(shares), 0, follows))
            chain += [index[name] for name in station.operators]
            shares += np.cumsum(station.shares).tolist()
        reads += [log for (_, reader), log in logs.items() if reader in pipeline.operators]
        record["logs"] = len(reads) - record["first_log"]
        for name in pipeline.operators:
            if flow[name].kind is Kind.SOURCE:
                readers[index[name]] = -1 if name in plan.cuts else index[flow.consumers(name)[0].name]
        if last.kind is not Kind.SINK:
            routes = behaviour.of(last.name).routes
            record["routed"] = bool(routes)
            share = 0.0
            for consumer in flow.consumers(last.name):
                share += routes.get(consumer.name, 0.0)
                outs.append((logs[last.name, consumer.name], share))
            record["outs"] = len(outs) - record["first_out"]
    return Queries(
        pipelines=found,
        queries=records,
        stages=np.array(stage_records, STAGE),
        chain=np.array(chain, np.int64),
        shares=np.array(shares, float),
        reads=np.array(reads, np.int64),
        outs=np.array(outs, OUT),
        readers=readers,
        query_of=query_of,
    )
