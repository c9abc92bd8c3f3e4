"""The arrays of the fluid simulation that follow from the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.stations import SimulatedStation, stations
from penstock.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidLayout:
    """The stations of a plan. Arrays are indexed by station, unless stated otherwise."""

    stations: tuple[SimulatedStation, ...]
    first_operator: np.ndarray  # position of each station's first operator in `flow.operators`
    is_source: list[bool]
    sinks: list[int]  # stations that end with a sink
    service_s: np.ndarray  # mean time of one row through the station
    service_scv: np.ndarray
    arrival_scv: np.ndarray
    gain: np.ndarray  # station x consumer station: rows out per row in
    is_bounded: np.ndarray  # station x consumer station: whether a full buffer blocks the rows
    capacity: np.ndarray  # rows that may wait
    rows_in: np.ndarray  # operator x station: rows into the operator per row into the station
    rows_out: np.ndarray  # operator x station: rows out of the operator per row into the station
    sink_rows: np.ndarray  # rows into the last operator per row into the station

    @property
    def producers(self) -> list[list[tuple[int, float]]]:
        """The producers of each station and their gains."""
        return [[(int(i), float(gains[i])) for i in np.flatnonzero(gains)] for gains in self.gain.T]


def fluid_layout(flow: Dataflow, plan: Plan, behaviour: Behaviour) -> FluidLayout:
    """Return the arrays of the stations of a plan."""
    own = stations(flow, plan, behaviour)
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    station_of = {name: number for number, station in enumerate(own) for name in station.operators}
    count = len(own)
    gain, is_bounded = np.zeros((count, count)), np.zeros((count, count), bool)
    rows_in, rows_out = np.zeros((len(index), count)), np.zeros((len(index), count))
    service_s, service_variance, arrival_scv = np.zeros(count), np.zeros(count), np.ones(count)
    for number, station in enumerate(own):
        rows = 1.0
        for name in station.operators:
            service = behaviour.of(name).service_s
            rows_in[index[name], number] = rows
            service_s[number] += rows * service.mean
            service_variance[number] += rows * service.scv * service.mean**2
            if flow[name].kind is not Kind.SINK:
                rows *= 1.0 if flow[name].kind is Kind.SOURCE else behaviour.selectivity(flow, name).mean
                rows_out[index[name], number] = rows
        last = station.operators[-1]
        routes = behaviour.of(last).routes
        for consumer in flow.consumers(last):
            to = station_of[consumer.name]
            gain[number, to] += rows * (routes.get(consumer.name, 0.0) if routes else 1.0)
            is_bounded[number, to] = behaviour.of(consumer.name).buffer_rows is not None and last not in plan.cuts
            if flow[station.name].kind is Kind.SOURCE:
                source = behaviour.source(station.name)
                arrival_scv[to] = source.batch.mean * (source.interarrival.scv + source.batch.scv)
    buffers = [behaviour.of(station.name).buffer_rows for station in own]
    last_operator = [index[station.operators[-1]] for station in own]
    return FluidLayout(
        stations=own,
        first_operator=np.array([index[station.name] for station in own]),
        is_source=[flow[station.name].kind is Kind.SOURCE for station in own],
        sinks=[i for i, station in enumerate(own) if flow[station.operators[-1]].kind is Kind.SINK],
        service_s=service_s,
        service_scv=service_variance / np.where(service_s > 0, service_s, 1.0) ** 2,
        arrival_scv=arrival_scv,
        gain=gain,
        is_bounded=is_bounded,
        capacity=np.array([math.inf if rows is None else rows for rows in buffers]),
        rows_in=rows_in,
        rows_out=rows_out,
        sink_rows=rows_in[np.array(last_operator), np.arange(count)],
    )
