"""The arrays of the row-by-row loop that follow from the plan."""

from __future__ import annotations

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.behaviour import UNLIMITED_ROWS, Behaviour, Queue
from penstock.engines.simulated.compiled.records import NONE, Records
from penstock.engines.simulated.rows.records import (
    BY_KEY,
    OPERATOR,
    REPLICA,
    ROUND_ROBIN,
    SHARED,
    STATION,
    STREAM,
    RowLayout,
)
from penstock.engines.simulated.stations import SimulatedStation
from penstock.plan import Plan


def row_layout(flow: Dataflow, plan: Plan, behaviour: Behaviour, stations: tuple[SimulatedStation, ...]) -> RowLayout:
    """Return the arrays for these stations, with all replicas idle and all queues empty."""
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    operators, pair_of = _operators(flow, behaviour)
    for number, station in enumerate(stations):
        for position, name in enumerate(station.operators):
            operators["station"][index[name]], operators["position"][index[name]] = number, position
    records = _stations(flow, behaviour, stations)
    return RowLayout(
        operators=operators,
        stations=records,
        chain=np.array([index[name] for station in stations for name in station.operators], np.int64),
        streams=_streams(flow, plan, behaviour, stations, pair_of),
        shares=np.concatenate([np.zeros(0), *(np.cumsum(station.key_shares) for station in stations)]),
        replicas=_replicas(flow, stations, records),
    )


def _operators(flow: Dataflow, behaviour: Behaviour) -> tuple[Records, dict[tuple[str, str], int]]:
    """Return the OPERATOR records, and (producer, consumer) -> pairing list. All plans have the same pairing lists."""
    records = np.zeros(len(flow.operators), OPERATOR)
    records["inputs"] = 1
    pair_of: dict[tuple[str, str], int] = {}
    for at, operator in enumerate(flow.operators):
        if behaviour.of(operator.name).pairs:
            size = len(operator.inputs)
            records["inputs"][at] = records["pair_size"][at] = size
            records["pair_first"][at] = len(pair_of)
            pair_of |= {(name, operator.name): len(pair_of) + i for i, name in enumerate(operator.inputs)}
    return records, pair_of


def _stations(flow: Dataflow, behaviour: Behaviour, stations: tuple[SimulatedStation, ...]) -> Records:
    records = np.zeros(len(stations), STATION)
    for field in ("blocked_head", "blocked_tail"):
        records[field] = NONE
    records["replicas"] = [station.replicas for station in stations]
    records["chain_size"] = [len(station.operators) for station in stations]
    records["out_size"] = [len(flow.consumers(station.operators[-1])) for station in stations]
    records["dispatch"] = [_dispatch(behaviour, station) for station in stations]
    buffers = [behaviour.of(station.name).buffer_rows or behaviour.thread.queue_rows for station in stations]
    records["capacity"] = [UNLIMITED_ROWS if rows is None else rows for rows in buffers]
    records["is_routed"] = [bool(behaviour.of(station.operators[-1]).routes) for station in stations]
    records["is_sink"] = [flow[station.operators[-1]].kind is Kind.SINK for station in stations]
    records["bundles"] = [len(station.bundles) for station in stations]
    records["group_first"] = _starts(records["bundles"] * records["chain_size"])
    records["entry_s"] = [station.entry_s for station in stations]
    records["first_replica"] = _starts(records["replicas"])
    records["chain_first"] = _starts(records["chain_size"])
    records["out_first"] = _starts(records["out_size"])
    records["queues"] = [
        _queue_count(own, dispatch) for own, dispatch in zip(stations, records["dispatch"], strict=True)
    ]
    records["first_queue"] = _starts(records["queues"])
    records["share_first"] = _starts(np.array([len(station.key_shares) for station in stations]))
    return records


def _queue_count(station: SimulatedStation, dispatch: int) -> int:
    if dispatch == SHARED:
        return 1
    return station.replicas if dispatch == ROUND_ROBIN else len(station.bundles)


def _dispatch(behaviour: Behaviour, station: SimulatedStation) -> int:
    if station.key_shares:
        return BY_KEY
    return ROUND_ROBIN if behaviour.of(station.name).queue is Queue.REPLICA else SHARED


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Return the index of the first element of each group of these sizes."""
    return np.asarray(np.cumsum(sizes) - sizes)


def _streams(
    flow: Dataflow,
    plan: Plan,
    behaviour: Behaviour,
    stations: tuple[SimulatedStation, ...],
    pair_of: dict[tuple[str, str], int],
) -> Records:
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    streams: list[tuple[int, float, bool, int, int]] = []
    for station in stations:
        last = station.operators[-1]
        routes = behaviour.of(last).routes
        share = 0.0
        for consumer in flow.consumers(last):
            share += routes.get(consumer.name, 0.0)
            has_buffer = behaviour.of(consumer.name).buffer_rows is not None and last not in plan.cuts
            is_bounded = has_buffer or behaviour.thread.queue_rows is not None
            pair = pair_of.get((last, consumer.name), NONE)
            streams.append((index[consumer.name], share, is_bounded, pair, consumer.inputs.index(last)))
    return np.array(streams, STREAM)


def _replicas(flow: Dataflow, stations: tuple[SimulatedStation, ...], of_stations: Records) -> Records:
    counts = of_stations["replicas"]
    records = np.zeros(int(counts.sum()), REPLICA)
    records["station"] = np.repeat(np.arange(len(stations)), counts)
    records["is_source"] = np.repeat([flow[station.name].kind is Kind.SOURCE for station in stations], counts)
    for field, default in (("slowdown", 1.0), ("pool", 0), ("core_share", 0.0)):
        values = [[getattr(slot, field) for slot in own.slots] or [default] * own.replicas for own in stations]
        records[field] = np.concatenate(values)
    records["stretch"] = 1.0
    records["bundle"] = np.concatenate([_bundles(station) for station in stations])
    records["queue"] = np.concatenate(
        [_queues(station, record) for station, record in zip(stations, of_stations, strict=True)]
    )
    records["due_s"] = np.inf
    records["stream"] = records["next"] = NONE
    return records


def _bundles(station: SimulatedStation) -> np.ndarray:
    """Return the replica of the plan to which each server of a station belongs."""
    return np.repeat(np.arange(len(station.bundles)), station.bundles)


def _queues(station: SimulatedStation, record: np.void) -> np.ndarray:
    """Return the queue of each server of a station."""
    if record["dispatch"] == BY_KEY:
        own = _bundles(station)
    else:
        own = np.arange(station.replicas) if record["dispatch"] == ROUND_ROBIN else np.zeros(station.replicas, np.int64)
    return np.asarray(record["first_queue"] + own)
