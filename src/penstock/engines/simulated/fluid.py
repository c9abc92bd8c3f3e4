"""Stations as a fluid: for sizes at which rows cannot be counted one by one.

Rows are a volume that flows; time goes in steps. What is exact: rates, throughput, utilisation, and the growth and
drain of backlogs where load exceeds capacity. What is a formula: how long a row waits by chance where it does not, for
which Sakasegawa's approximation of GI/G/k is taken (European Journal of Operational Research 1, 1977),

    W = (ca2 + cs2) / 2 x rho^(sqrt(2 (k + 1)) - 1) / (k |1 - rho|) x s

with the load of the last second, to which is added how long the rows that are served now were in the backlog, first
come first served. Above a load of 1 that, with rho^... = 1, is what chance adds to a backlog in the long run (a
Brownian motion that drifts away from 0). Near it the long run is never reached: W grows no faster than at a load of 1,
where it is a reflected Brownian motion without drift, of mean sqrt(2 v t / pi) and v = (ca2 + cs2) s / k.

Rows derived from a source's row carry its age; given that a row waits, W has the variance of an exponential, and a
latency has the gamma law of its mean and variance. Pairing joins are not simulated, replicas with keys share one queue.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.counts import no_counts
from penstock.engines.simulated.distributions import BehaviourError
from penstock.engines.simulated.histogram import note
from penstock.engines.simulated.rates import RateSteps
from penstock.engines.simulated.sources import appending
from penstock.engines.simulated.stations import Station, stations
from penstock.plan import Plan

STEP_S = 0.05
_LOOK_S = 1.0  # how often latencies are worked out
_NEAREST = 1e-9  # to a load of 1: the long run of W is finite
_NO_BACKLOG = 1e-6  # rows
_QUANTILES = (np.arange(100) + 0.5) / 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """Of the stations of a plan. Arrays go by station, but `of_operator`: operator x station."""

    stations: tuple[Station, ...]
    replicas: np.ndarray
    service_s: np.ndarray  # of one row through the whole station
    service_scv: np.ndarray
    gain: np.ndarray  # from station x to station: rows there for a row here
    bounded: np.ndarray  # from x to: whether a full buffer holds rows up
    capacity: np.ndarray
    rows_of_operator: np.ndarray  # operator x station: rows into it for a row into the station
    rows_out_of: np.ndarray
    arrival_scv: np.ndarray


class _Chunk(NamedTuple):
    """Rows that came to a station in the same second."""

    at_s: float
    rows: float
    age_s: float  # when they came
    variance_s2: float


class Fluid:
    """A world in which rows are a volume."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan) -> None:
        for operator in flow.operators:
            if behaviour.of(operator.name).pairs:
                raise BehaviourError(f"'{operator.name}' pairs rows one by one, which a fluid does not simulate")
        self._flow = flow
        self._behaviour = behaviour
        self._names = [operator.name for operator in flow.operators]
        self._appending = appending(flow, behaviour)
        self.counts = no_counts(len(self._names))
        self._exact = {name: np.zeros(len(self._names)) for name in ("arrived", "rows_in", "rows_out", "busy_s")}
        self._left = {name: math.inf if one.rows is None else float(one.rows) for name, one in self._appending.items()}
        self._now_s = 0.0
        self._halted: frozenset[str] = frozenset()
        self._dead: frozenset[int] = frozenset()
        self._waiting: np.ndarray = np.zeros(len(self._names))  # by operator
        self._by_chance: np.ndarray = np.zeros(len(self._names))  # W, by operator: a change of plan does not reset it
        self._volume: np.ndarray = np.zeros(0)  # by station
        self._sent: np.ndarray = np.zeros(0)  # on the way to each station
        self._backlogs: list[deque[_Chunk]] = []  # by station, oldest first
        self._before: dict[str, deque[_Chunk]] = {}
        self._lay_out(plan)

    # ---- what a world offers

    @property
    def now_s(self) -> float:
        return self._now_s

    def advance(self, until_s: float) -> None:
        while self._now_s < until_s:
            end = min(until_s, (math.floor(self._now_s / _LOOK_S + 1e-9) + 1) * _LOOK_S)
            came = np.zeros(len(self._volumes.stations))
            served = np.zeros_like(came)
            steps = max(1, math.ceil((end - self._now_s) / STEP_S - 1e-9))
            step = (end - self._now_s) / steps
            started = self._now_s
            for i in range(steps):
                one_came, one_served = self._step(started + i * step, step)
                came += one_came
                served += one_served
            self._now_s = end
            self._count(came, served)
            self._age(came, served, end - started)

    def replan(self, plan: Plan) -> None:
        self._keep()
        # Rows on the way wait at their stations from now on, as if they had come.
        self._exact["arrived"] += np.bincount(self._first_at, weights=self._sent, minlength=len(self._names))
        self._before = {one.name: queue for one, queue in zip(self._volumes.stations, self._backlogs, strict=True)}
        self._lay_out(plan)

    def stand_still(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        self._halted, self._dead = frozenset(pipelines), frozenset(executors)
        self._set_speeds()

    def set_rate(self, source: str, rates: RateSteps) -> None:
        self._appending[source] = dataclasses.replace(self._appending[source], rates=rates)

    def waiting(self) -> np.ndarray:
        self._keep()
        return np.asarray(np.rint(self._waiting), np.int64)

    def in_hand(self) -> np.ndarray:
        return np.zeros(len(self._names), np.int64)

    def idle(self) -> bool:
        return not any(self._left.values()) and float(self._volume.sum() + self._sent.sum()) < 0.5

    # ---- one step

    def _step(self, at_s: float, step_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows that came and rows that were served. Rows sent on arrive in the next step."""
        volumes = self._volumes
        came = self._sent
        for number, name in self._source_at:
            one = self._appending[name]
            rows = self._left[name] if one.rates is None else one.rates.rows_between(at_s, at_s + step_s)
            rows = min(rows, self._left[name])
            self._left[name] -= rows
            came[number] += rows
        there = self._volume + came
        served = np.minimum(there, self._speed * step_s)
        if self._any_bound:
            room = np.maximum(0.0, volumes.capacity - there + served)
            asked = served[:, None] * volumes.gain * volumes.bounded
            total = asked.sum(axis=0)
            share = np.where(total > room, room / np.maximum(total, 1e-300), 1.0)
            served = served * np.where(volumes.bounded, share[None, :], 1.0).min(axis=1)
        self._volume = there - served
        self._sent = served @ volumes.gain
        return came.copy(), served

    def _count(self, came: np.ndarray, served: np.ndarray) -> None:
        volumes, exact, operators = self._volumes, self._exact, self.counts.operators
        exact["arrived"] += np.bincount(self._first_at, weights=came, minlength=len(self._names))
        rows_in = volumes.rows_of_operator @ served
        exact["rows_in"] += rows_in
        exact["rows_out"] += volumes.rows_out_of @ served
        exact["busy_s"] += volumes.rows_of_operator @ (served * self._slowdown) * self._operator_s
        for name in ("arrived", "rows_in", "rows_out"):
            operators[name] = np.rint(exact[name])
        operators["busy_s"] = exact["busy_s"]

    # ---- latencies

    def _age(self, came: np.ndarray, served: np.ndarray, span_s: float) -> None:
        """Ages go downstream with the rows; where a loop brings rows back, with the age that they had a second ago."""
        stays, variances = (of.tolist() for of in self._stays(came / span_s, span_s))
        came_rows, served_rows = came.tolist(), served.tolist()
        middle_s = self._now_s - span_s / 2
        for number, before in enumerate(self._before_each):
            flows = [(served_rows[other] * gain, other) for other, gain in before]
            into = sum(rows for rows, _ in flows) + (came_rows[number] if self._is_source[number] else 0.0)
            if into <= 0.0 and served_rows[number] <= 0.0:
                continue
            mean = second = 0.0
            for rows, other in flows if into > 0.0 else ():
                mean += rows / into * self._out_mean[other]
                second += rows / into * (self._out_variance[other] + self._out_mean[other] ** 2)
            age = _Chunk(middle_s, came_rows[number], mean, max(0.0, second - mean**2))
            mean, variance = self._waited(number, age, served_rows[number])
            self._out_mean[number] = mean + stays[number]
            self._out_variance[number] = variance + variances[number]
        for sink in self._sinks:
            if served[sink] > 0:
                rows = served[sink] * self._rows_to_sink[sink]
                for seconds in _spread(self._out_mean[sink], self._out_variance[sink]):
                    note(self.counts.stays, self.counts.stay_sum, seconds, rows / len(_QUANTILES))

    def _waited(self, number: int, new: _Chunk, served: float) -> tuple[float, float]:
        """Mean and variance of the ages of the rows that leave a backlog, first come first served."""
        queue, there = self._backlogs[number], self._volume[number] >= _NO_BACKLOG
        if not queue and not there:
            return new.age_s, new.variance_s2
        queue.append(new)
        left, mean, second = served, 0.0, 0.0
        while left > 0.0 and queue:
            chunk = queue.popleft()
            taken = min(chunk.rows, left)
            age_s = chunk.age_s + new.at_s - chunk.at_s
            mean += taken / served * age_s
            second += taken / served * (age_s**2 + chunk.variance_s2)
            left -= taken
            if chunk.rows > taken:
                queue.appendleft(chunk._replace(rows=chunk.rows - taken))
        if not there:
            queue.clear()
        return mean, max(0.0, second - mean**2)

    def _stays(self, arrival_per_s: np.ndarray, span_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the time that a row is at each station, beside that in a backlog."""
        volumes = self._volumes
        up = np.maximum(1e-9, self._speed * volumes.service_s)  # replicas that work
        costs = volumes.service_s > 0
        load = np.where(costs, arrival_per_s * volumes.service_s / up, 0.0)
        waits = np.minimum(1.0, load) ** (np.sqrt(2.0 * (up + 1.0)) - 1.0)  # about the probability to wait
        half_v = (volumes.arrival_scv + volumes.service_scv) / 2.0 * volumes.service_s / up
        in_the_long_run = half_v * waits / np.maximum(_NEAREST, np.abs(1.0 - load))
        by_now = np.sqrt(self._by_chance[self._first_at] ** 2 + 4.0 / math.pi * half_v * span_s)
        by_chance = np.minimum(in_the_long_run, by_now)
        self._by_chance[self._first_at] = by_chance
        spread = np.where(waits > 0, (2.0 / np.maximum(waits, 1e-12) - 1.0) * by_chance**2, 0.0)
        mean = volumes.service_s * self._slowdown + by_chance
        return np.where(costs, mean, 0.0), np.where(costs, volumes.service_s**2 * volumes.service_scv + spread, 0.0)

    # ---- the layout of a plan

    def _lay_out(self, plan: Plan) -> None:
        found = stations(self._flow, plan, self._behaviour)
        index = {name: i for i, name in enumerate(self._names)}
        self._volumes = volumes = _volumes(self._flow, plan, self._behaviour, found)
        self._first_at = np.array([index[station.name] for station in found])
        kinds = [self._flow[station.name].kind for station in found]
        self._is_source = [kind is Kind.SOURCE for kind in kinds]
        self._source_at = [(i, one.name) for i, one in enumerate(found) if self._is_source[i]]
        self._sinks = [i for i, one in enumerate(found) if self._flow[one.operators[-1]].kind is Kind.SINK]
        ends = np.array([index[station.operators[-1]] for station in found])
        self._rows_to_sink = volumes.rows_of_operator[ends, np.arange(len(found))]
        self._operator_s = np.array([self._behaviour.of(name).service_s.mean for name in self._names])
        self._any_bound = bool(volumes.bounded.any())
        station_of = {name: number for number, station in enumerate(found) for name in station.operators}
        self._volume = np.zeros(len(found))
        for at, rows in enumerate(self._waiting):  # those within a station count as rows at its entrance
            number = station_of[self._names[at]]
            self._volume[number] += rows / max(1e-12, volumes.rows_of_operator[at, number])
        self._backlogs = [self._kept_backlog(one.name, rows) for one, rows in zip(found, self._volume, strict=True)]
        self._sent = np.zeros(len(found))
        self._out_mean, self._out_variance = [0.0] * len(found), [0.0] * len(found)
        self._before_each = [[(int(i), float(of[i])) for i in np.flatnonzero(of)] for of in volumes.gain.T]
        self._set_speeds()

    def _kept_backlog(self, station: str, rows: float) -> deque[_Chunk]:
        """What waited at this station before it was laid out anew; what did not came just now."""
        before = self._before.get(station, deque())
        waited = sum(chunk.rows for chunk in before)
        if rows < _NO_BACKLOG or waited <= 0.0:
            return deque([_Chunk(self._now_s, float(rows), 0.0, 0.0)]) if rows >= _NO_BACKLOG else deque()
        return deque(chunk._replace(rows=chunk.rows * rows / waited) for chunk in before)

    def _keep(self) -> None:
        """Rows by operator, from rows by station."""
        self._waiting = np.bincount(self._first_at, weights=self._volume + self._sent, minlength=len(self._names))

    def _set_speeds(self) -> None:
        """Rows/s that the replicas which are up serve together; infinite where they cost nothing."""
        speeds, slowdowns = [], []
        for number, station in enumerate(self._volumes.stations):
            service = self._volumes.service_s[number]
            seats = [seat.slowdown for seat in station.seats if seat.executor not in self._dead]
            slowdowns.append(float(np.mean(seats)) if seats else 1.0)
            if station.pipeline in self._halted:
                speeds.append(0.0)
            else:
                speeds.append(sum(1.0 / (service * one) for one in seats) if service > 0 else 1e18)
        self._speed, self._slowdown = np.array(speeds), np.array(slowdowns)


def _spread(mean: float, variance: float) -> np.ndarray:
    """Equally likely latencies of the gamma law with this mean and variance, and exactly this mean."""
    if variance <= 1e-12 * mean**2:
        return np.full(len(_QUANTILES), mean)
    drawn = gammaincinv(mean**2 / variance, _QUANTILES) * variance / mean
    return np.asarray(drawn * (mean / drawn.mean())) if drawn.mean() > 0 else np.full(len(_QUANTILES), mean)


def _volumes(flow: Dataflow, plan: Plan, behaviour: Behaviour, found: tuple[Station, ...]) -> Volumes:
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    station_of = {name: number for number, station in enumerate(found) for name in station.operators}
    count = len(found)
    gain, bounded = np.zeros((count, count)), np.zeros((count, count), bool)
    into, out = np.zeros((len(index), count)), np.zeros((len(index), count))
    service, variance, scv = np.zeros(count), np.zeros(count), np.ones(count)
    for number, station in enumerate(found):
        rows = 1.0
        for name in station.operators:
            law = behaviour.of(name).service_s
            into[index[name], number] = rows
            service[number] += rows * law.mean
            variance[number] += rows * law.scv * law.mean**2
            if flow[name].kind is not Kind.SINK:
                rows *= 1.0 if flow[name].kind is Kind.SOURCE else behaviour.selectivity(flow, name).mean
                out[index[name], number] = rows
        last = station.operators[-1]
        routes = behaviour.of(last).routes
        for consumer in flow.consumers(last):
            to = station_of[consumer.name]
            gain[number, to] += rows * (routes.get(consumer.name, 0.0) if routes else 1.0)
            has_bound = behaviour.of(consumer.name).buffer_rows is not None
            bounded[number, to] = has_bound and last not in plan.cuts
            if flow[station.name].kind is Kind.SOURCE:
                given = behaviour.source(station.name)
                scv[to] = given.batch.mean * (given.interarrival.scv + given.batch.scv)
    buffers = [behaviour.of(station.name).buffer_rows for station in found]
    return Volumes(
        stations=found,
        replicas=np.array([station.replicas for station in found]),
        service_s=service,
        service_scv=variance / np.where(service > 0, service, 1.0) ** 2,
        gain=gain,
        bounded=bounded,
        capacity=np.array([math.inf if rows is None else rows for rows in buffers]),
        rows_of_operator=into,
        rows_out_of=out,
        arrival_scv=scv,
    )
