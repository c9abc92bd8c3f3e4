"""The fluid simulation: rows are a volume that flows between stations, and time passes in fixed steps.

Rates, throughput, utilisation, and the growth and drain of backlogs under overload are exact. The random waiting time
at a station is a formula: Sakasegawa's approximation of GI/G/k (European Journal of Operational Research 1, 1977),

    W = (ca2 + cs2) / 2 x rho^(sqrt(2 (k + 1)) - 1) / (k |1 - rho|) x s

It uses the load rho of the last second. The time that rows spent in a backlog (first come, first served) is added.
Above a load of 1, the formula with rho^... = 1 is the long-term effect of randomness on a growing backlog, a Brownian
motion with drift. Near a load of 1 the long term is never reached. W therefore grows at most as fast as at a load of 1,
where it is a reflected Brownian motion without drift: its mean is sqrt(2 v t / pi) with v = (ca2 + cs2) s / k.

Rows carry the age of the source row that they derive from. Given that a row waits, W has the variance of an
exponential. Latencies follow the gamma distribution with their mean and variance. Pairing joins are not simulated, and
replicas with keys share one queue.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from penstock.dataflow import Dataflow
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.compiled.counts import SimulationCounts, count_latencies
from penstock.engines.simulated.distributions import BehaviourError
from penstock.engines.simulated.fluid.contention import SlotContention, slot_contention
from penstock.engines.simulated.fluid.layout import fluid_layout
from penstock.engines.simulated.source_load import RateSteps, source_loads
from penstock.engines.simulated.stations import SimulatedStation
from penstock.plan import Plan

STEP_S = 0.05
_LATENCY_INTERVAL_S = 1.0  # how often latencies are computed
_MIN_DISTANCE = 1e-9  # between the load and 1, which keeps W finite
_MIN_BACKLOG = 1e-6  # rows; less is no backlog
_QUANTILES = (np.arange(100) + 0.5) / 100


class _Chunk(NamedTuple):
    """Rows that arrived at a station in the same second."""

    at_s: float
    rows: float
    age_s: float  # at arrival
    variance_s2: float


class FluidSimulation:
    """Simulates rows as a volume."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan) -> None:
        for operator in flow.operators:
            own = behaviour.of(operator.name)
            if own.pairs or behaviour.period_s(flow, operator.name) is not None or own.workload:
                does = "pairs rows" if own.pairs else "has an output that is not proportional to its input"
                raise BehaviourError(
                    f"Operator '{operator.name}' {does}, which mode 'fluid' does not simulate; use mode 'row-by-row'."
                )
        self._flow = flow
        self._behaviour = behaviour
        self._names = [operator.name for operator in flow.operators]
        self._operator_s = np.array([behaviour.of(name).service_s.mean for name in self._names])
        self._loads = source_loads(flow, behaviour)
        self._rows_left = {
            name: math.inf if load.rows is None else float(load.rows) for name, load in self._loads.items()
        }
        self.counts = SimulationCounts.zero(len(self._names))
        # Unrounded counts, by operator.
        self._exact = {field: np.zeros(len(self._names)) for field in ("arrived", "rows_in", "rows_out", "busy_s")}
        self._now_s = 0.0
        self._suspended_pipelines: frozenset[str] = frozenset()
        self._suspended_executors: frozenset[int] = frozenset()
        self._contention: SlotContention | None = None
        self._volume: np.ndarray = np.zeros(0)  # rows at each station
        self._in_transit: np.ndarray = np.zeros(0)  # rows on their way to each station
        self._random_wait_s = np.zeros(len(self._names))  # W, by operator, which survives a change of plan
        self._lay_out(plan, np.zeros(len(self._names)), {})

    # ---- the SimulationMode protocol

    @property
    def now_s(self) -> float:
        return self._now_s

    def advance(self, until_s: float) -> None:
        while self._now_s < until_s:
            start_s = self._now_s
            end_s = min(until_s, (math.floor(start_s / _LATENCY_INTERVAL_S + 1e-9) + 1) * _LATENCY_INTERVAL_S)
            arrived = np.zeros(len(self._layout.stations))
            served = np.zeros_like(arrived)
            steps = max(1, math.ceil((end_s - start_s) / STEP_S - 1e-9))
            step_s = (end_s - start_s) / steps
            for i in range(steps):
                step_arrived, step_served = self._step(start_s + i * step_s, step_s)
                arrived += step_arrived
                served += step_served
            self._now_s = end_s
            self._update_counts(arrived, served)
            self._update_latencies(arrived, served, end_s - start_s)

    def change_plan(self, plan: Plan) -> None:
        # Rows between two stations arrive now.
        in_transit = np.bincount(self._layout.first_operator, weights=self._in_transit, minlength=len(self._names))
        self._exact["arrived"] += in_transit
        names = (station.name for station in self._layout.stations)
        self._lay_out(plan, self._waiting_by_operator(), dict(zip(names, self._backlogs, strict=True)))

    def suspend(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        self._suspended_pipelines, self._suspended_executors = frozenset(pipelines), frozenset(executors)
        self._set_speeds()

    def set_rate(self, source: str, rates: RateSteps) -> None:
        self._loads[source] = dataclasses.replace(self._loads[source], rates=rates)

    def waiting_rows(self) -> np.ndarray:
        return np.asarray(np.rint(self._waiting_by_operator()), np.int64)

    def in_service_rows(self) -> np.ndarray:
        return np.zeros(len(self._names), np.int64)

    def counted_until_s(self) -> np.ndarray:
        return np.full(len(self._names), self.now_s)

    def is_idle(self) -> bool:
        return not any(self._rows_left.values()) and float(self._volume.sum() + self._in_transit.sum()) < 0.5

    # ---- one step

    def _step(self, at_s: float, step_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that arrived at each station and those that it served. Served rows arrive one step later."""
        layout = self._layout
        arrived = self._in_transit
        for number, name in self._sources:
            load = self._loads[name]
            rows = self._rows_left[name] if load.rates is None else load.rates.rows_between(at_s, at_s + step_s)
            rows = min(rows, self._rows_left[name])
            self._rows_left[name] -= rows
            arrived[number] += rows
        present = self._volume + arrived
        served = np.minimum(present, self._speed * step_s)
        if self._contention is not None:
            alone = served
            served = self._contention.apply(served, step_s)
            self._stretch = np.where(served > 0, alone / np.maximum(served, 1e-300), 1.0)
        if self._any_bounded:
            space = np.maximum(0.0, layout.capacity - present + served)
            requested = served[:, None] * layout.gain * layout.is_bounded
            total = requested.sum(axis=0)
            share = np.where(total > space, space / np.maximum(total, 1e-300), 1.0)
            served = served * np.where(layout.is_bounded, share[None, :], 1.0).min(axis=1)
        self._volume = present - served
        self._in_transit = served @ layout.gain
        return arrived.copy(), served

    def _update_counts(self, arrived: np.ndarray, served: np.ndarray) -> None:
        layout, exact, operators = self._layout, self._exact, self.counts.operators
        exact["arrived"] += np.bincount(layout.first_operator, weights=arrived, minlength=len(self._names))
        exact["rows_in"] += layout.rows_in @ served
        exact["rows_out"] += layout.rows_out @ served
        exact["busy_s"] += layout.rows_in @ (served * self._slowdown * self._stretch) * self._operator_s
        for field in ("arrived", "rows_in", "rows_out"):
            operators[field] = np.rint(exact[field])
        operators["busy_s"] = exact["busy_s"]

    # ---- latencies

    def _update_latencies(self, arrived: np.ndarray, served: np.ndarray, span_s: float) -> None:
        """Propagate ages downstream. Rows that return in a loop have the age of the second before."""
        means_s, variances_s2 = (values.tolist() for values in self._station_times(arrived / span_s, span_s))
        arrived_rows, served_rows = arrived.tolist(), served.tolist()
        middle_s = self._now_s - span_s / 2
        for number, producers in enumerate(self._producers):
            inputs = [(served_rows[producer] * gain, producer) for producer, gain in producers]
            external = arrived_rows[number] if self._layout.is_source[number] else 0.0
            total = sum(rows for rows, _ in inputs) + external
            if total <= 0.0 and served_rows[number] <= 0.0:
                continue
            mean = second = 0.0
            for rows, producer in inputs if total > 0.0 else ():
                mean += rows / total * self._age_mean[producer]
                second += rows / total * (self._age_variance[producer] + self._age_mean[producer] ** 2)
            chunk = _Chunk(middle_s, arrived_rows[number], mean, max(0.0, second - mean**2))
            mean, variance = self._leave_backlog(number, chunk, served_rows[number])
            self._age_mean[number] = mean + means_s[number]
            self._age_variance[number] = variance + variances_s2[number]
        for sink in self._layout.sinks:
            if served[sink] > 0:
                rows = served[sink] * self._layout.sink_rows[sink]
                latencies_s = _latency_quantiles(self._age_mean[sink], self._age_variance[sink])
                count_latencies(self.counts, latencies_s, rows / len(_QUANTILES))

    def _leave_backlog(self, number: int, arrived: _Chunk, served: float) -> tuple[float, float]:
        """Return mean and variance of the ages of the rows that leave a backlog, first come, first served."""
        backlog, has_backlog = self._backlogs[number], self._volume[number] >= _MIN_BACKLOG
        if not backlog and not has_backlog:
            return arrived.age_s, arrived.variance_s2
        backlog.append(arrived)
        left, mean, second = served, 0.0, 0.0
        while left > 0.0 and backlog:
            chunk = backlog.popleft()
            taken = min(chunk.rows, left)
            age_s = chunk.age_s + arrived.at_s - chunk.at_s
            mean += taken / served * age_s
            second += taken / served * (age_s**2 + chunk.variance_s2)
            left -= taken
            if chunk.rows > taken:
                backlog.appendleft(chunk._replace(rows=chunk.rows - taken))
        if not has_backlog:
            backlog.clear()
        return mean, max(0.0, second - mean**2)

    def _station_times(self, arrivals_per_s: np.ndarray, span_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a row's time at each station, without the time in a backlog."""
        layout = self._layout
        working = np.maximum(1e-9, self._speed * layout.service_s)  # replicas that are not suspended
        takes_time = layout.service_s > 0
        load = np.where(takes_time, arrivals_per_s * layout.service_s / working, 0.0)
        waits = np.minimum(1.0, load) ** (np.sqrt(2.0 * (working + 1.0)) - 1.0)  # about the probability of waiting
        half_v = (layout.arrival_scv + layout.service_scv) / 2.0 * layout.service_s / working
        long_term = half_v * waits / np.maximum(_MIN_DISTANCE, np.abs(1.0 - load))
        by_now = np.sqrt(self._random_wait_s[layout.first_operator] ** 2 + 4.0 / math.pi * half_v * span_s)
        wait_s = np.minimum(long_term, by_now)
        self._random_wait_s[layout.first_operator] = wait_s
        wait_variance = np.where(waits > 0, (2.0 / np.maximum(waits, 1e-12) - 1.0) * wait_s**2, 0.0)
        mean = layout.service_s * self._slowdown * self._stretch + wait_s
        variance = layout.service_s**2 * layout.service_scv + wait_variance
        return np.where(takes_time, mean, 0.0), np.where(takes_time, variance, 0.0)

    # ---- changes of the plan

    def _lay_out(self, plan: Plan, waiting: np.ndarray, backlogs: dict[str, deque[_Chunk]]) -> None:
        """Use a plan from now on. `waiting` are the rows by operator, `backlogs` their ages by station."""
        self._layout = layout = fluid_layout(self._flow, plan, self._behaviour)
        count = len(layout.stations)
        self._sources = [(i, station.name) for i, station in enumerate(layout.stations) if layout.is_source[i]]
        self._producers = layout.producers
        self._any_bounded = bool(layout.is_bounded.any())
        station_of = {name: number for number, station in enumerate(layout.stations) for name in station.operators}
        self._volume = np.zeros(count)
        for at, rows in enumerate(waiting):  # rows within a station count as rows at its input
            number = station_of[self._names[at]]
            self._volume[number] += rows / max(1e-12, layout.rows_in[at, number])
        self._backlogs = [
            self._rescaled_backlog(backlogs.get(station.name, deque()), float(rows))
            for station, rows in zip(layout.stations, self._volume, strict=True)
        ]
        self._in_transit = np.zeros(count)
        self._age_mean, self._age_variance = [0.0] * count, [0.0] * count  # ages of the rows that leave a station
        self._set_speeds()

    def _rescaled_backlog(self, before: deque[_Chunk], rows: float) -> deque[_Chunk]:
        """Return a backlog of `rows` rows with the ages of the backlog before. Rows without a known age arrived now."""
        rows_before = sum(chunk.rows for chunk in before)
        if rows < _MIN_BACKLOG:
            return deque()
        if rows_before <= 0.0:
            return deque([_Chunk(self._now_s, rows, 0.0, 0.0)])
        return deque(chunk._replace(rows=chunk.rows * rows / rows_before) for chunk in before)

    def _waiting_by_operator(self) -> np.ndarray:
        waiting = self._volume + self._in_transit
        return np.bincount(self._layout.first_operator, weights=waiting, minlength=len(self._names))

    def _set_speeds(self) -> None:
        """Set the rows/s that the available replicas of each station serve; 1e18 if a row takes no time."""
        speeds, slowdowns = [], []
        for number, station in enumerate(self._layout.stations):
            service_s = self._layout.service_s[number]
            available = [slot.slowdown for slot in station.slots if slot.executor not in self._suspended_executors]
            slowdowns.append(float(np.mean(available)) if available else 1.0)
            if station.pipeline in self._suspended_pipelines:
                speeds.append(0.0)
            else:
                speeds.append(self._speed_of(station, service_s) if service_s > 0 else 1e18)
        self._speed, self._slowdown = np.array(speeds), np.array(slowdowns)
        self._stretch = np.ones(len(speeds))
        self._contention = slot_contention(self._layout.stations, self._speed, self._suspended_executors)

    def _speed_of(self, station: SimulatedStation, service_s: float) -> float:
        """Return the rows/s of the available replicas.

        Replicas with planned shares cannot help each other: the rate at which the first one falls behind is the speed.
        """
        speeds, first = [], 0
        for threads in station.bundles:
            own = [
                slot
                for slot in station.slots[first : first + threads]
                if slot.executor not in self._suspended_executors
            ]
            speeds.append(sum(1.0 / (service_s * slot.slowdown) for slot in own))
            first += threads
        if not station.is_routed:
            return sum(speeds)
        return min(
            (speed / share for speed, share in zip(speeds, station.key_shares, strict=True) if speed > 0), default=0.0
        )


def _latency_quantiles(mean: float, variance: float) -> np.ndarray:
    """Return equally likely latencies of the gamma distribution with this variance and exactly this mean."""
    if variance <= 1e-12 * mean**2:
        return np.full(len(_QUANTILES), mean)
    quantiles = gammaincinv(mean**2 / variance, _QUANTILES) * variance / mean
    average = quantiles.mean()
    return np.asarray(quantiles * (mean / average)) if average > 0 else np.full(len(_QUANTILES), mean)
