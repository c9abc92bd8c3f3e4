"""Stations: what a dataflow under a plan is made of when operators work row by row.

A station is a run of operators that no cut divides and that the plan replicates as one; each of its replicas takes a
row through all of them. Sources are stations too, with one replica that takes no time. Between stations rows wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.dataflow import Dataflow, Kind, regions
from penstock.engines.simulated.behaviour import Behaviour, Queue
from penstock.engines.simulated.distributions import Fixed
from penstock.engines.simulated.placement import Seat, key_shares, seats
from penstock.engines.simulated.records import BY_SHARE, IN_TURN, OPERATOR, SERVER, SHARED, STATION, STREAM, Records
from penstock.plan import Plan, pipelines

NO_BOUND = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    operators: tuple[str, ...]
    pipeline: str
    replicas: int
    seats: tuple[Seat, ...]  # empty where it costs nothing and so needs no slot
    shares: tuple[float, ...]  # by replica, where rows go by key

    @property
    def name(self) -> str:
        return self.operators[0]


class Layout(NamedTuple):
    """Stations as the compiled loop reads them. Operators go by their place in `flow.operators`."""

    operators: Records
    stations: Records
    chain: np.ndarray  # operators, station by station
    streams: Records
    shares: np.ndarray  # cumulated, by replica
    servers: Records


def stations(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> tuple[Station, ...]:
    """Upstream first."""
    pipeline_of = {name: pipeline.name for pipeline in pipelines(flow, plan) for name in pipeline.operators}
    runs: list[tuple[tuple[str, ...], int]] = []
    for region in regions(flow):
        run: list[str] = []
        for name in region.operators:
            run.append(name)
            if name in plan.cuts or name == region.operators[-1]:
                runs.append((tuple(run), 1 if region.kind is Kind.SOURCE else plan.replicas[region.name]))
                run = []
    costly = [(run[0], replicas) for run, replicas in runs if any(_costs(behaviour, name) for name in run)]
    seated = seats(costly, plan, behaviour)
    found = []
    for names, replicas in runs:
        first = behaviour.of(names[0])
        by_key = first.keys > 0 or (first.queue is Queue.REPLICA and flow[names[0]].kind is Kind.KEYED)
        shares = tuple(key_shares(first.keys, first.zipf, replicas).tolist()) if by_key else ()
        found.append(
            Station(
                operators=names,
                pipeline=pipeline_of[names[0]],
                replicas=replicas,
                seats=seated.get(names[0], ()),
                shares=shares,
            )
        )
    return tuple(found)


def _costs(behaviour: Behaviour, name: str) -> bool:
    service = behaviour.of(name).service_s
    return not (isinstance(service, Fixed) and service.value == 0)


def layout(flow: Dataflow, plan: Plan, behaviour: Behaviour, found: tuple[Station, ...]) -> Layout:
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    operators, waits_on = _operators(flow, behaviour)
    records = np.zeros(len(found), STATION)
    for field in ("idle", "blocked_head", "blocked_tail"):
        records[field] = -1
    records["replicas"] = [station.replicas for station in found]
    records["chain_size"] = [len(station.operators) for station in found]
    records["out_size"] = [len(flow.consumers(station.operators[-1])) for station in found]
    records["dealing"] = [_dealing(behaviour, station) for station in found]
    buffers = [behaviour.of(station.name).buffer_rows for station in found]
    records["capacity"] = [NO_BOUND if rows is None else rows for rows in buffers]
    records["routed"] = [bool(behaviour.of(station.operators[-1]).routes) for station in found]
    records["sink"] = [flow[station.operators[-1]].kind is Kind.SINK for station in found]
    records["first_server"] = _starts(records["replicas"])
    records["chain_first"] = _starts(records["chain_size"])
    records["out_first"] = _starts(records["out_size"])
    records["first_queue"] = _starts(np.where(records["dealing"] == SHARED, 1, records["replicas"]))
    records["share_first"] = _starts(np.array([len(station.shares) for station in found]))
    streams: list[tuple[int, float, bool, int]] = []
    for number, station in enumerate(found):
        for at, name in enumerate(station.operators):
            operators["station"][index[name]], operators["place"][index[name]] = number, at
        last = station.operators[-1]
        routes = behaviour.of(last).routes
        share = 0.0
        for consumer in flow.consumers(last):
            share += routes.get(consumer.name, 0.0)
            pair = waits_on.get((last, consumer.name), -1)
            bounded = behaviour.of(consumer.name).buffer_rows is not None and last not in plan.cuts
            streams.append((index[consumer.name], share, bounded, pair))
    servers = np.zeros(int(records["replicas"].sum()), SERVER)
    servers["station"] = np.repeat(np.arange(len(found)), records["replicas"])
    servers["source"] = np.repeat([flow[station.name].kind is Kind.SOURCE for station in found], records["replicas"])
    seated = [[seat.slowdown for seat in station.seats] or [1.0] * station.replicas for station in found]
    servers["slowdown"] = np.concatenate(seated)
    servers["due"] = np.inf
    servers["stream"] = servers["after"] = -1
    return Layout(
        operators=operators,
        stations=records,
        chain=np.array([index[name] for station in found for name in station.operators], np.int64),
        streams=np.array(streams, STREAM),
        shares=np.concatenate([np.zeros(0), *(np.cumsum(station.shares) for station in found)]),
        servers=servers,
    )


def _operators(flow: Dataflow, behaviour: Behaviour) -> tuple[np.ndarray, dict[tuple[str, str], int]]:
    """Records of operators; and stream -> pairing list. Lists go by operator, so they are the same for every plan."""
    records = np.zeros(len(flow.operators), OPERATOR)
    records["inputs"] = 1
    waits_on: dict[tuple[str, str], int] = {}
    for at, operator in enumerate(flow.operators):
        if behaviour.of(operator.name).pairs:
            size = len(operator.inputs)
            records["inputs"][at] = records["pair_size"][at] = size
            records["pair_first"][at] = len(waits_on)
            waits_on |= {(name, operator.name): len(waits_on) + i for i, name in enumerate(operator.inputs)}
    return records, waits_on


def _dealing(behaviour: Behaviour, station: Station) -> int:
    if station.shares:
        return BY_SHARE
    return IN_TURN if behaviour.of(station.name).queue is Queue.REPLICA else SHARED


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.asarray(np.cumsum(sizes) - sizes)
