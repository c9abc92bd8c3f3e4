"""The row-by-row simulation: owns the arrays of the compiled loop and rebuilds them when the plan changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated.behaviour import UNLIMITED_ROWS, Behaviour
from penstock.engines.simulated.compiled.counts import SimulationCounts
from penstock.engines.simulated.compiled.draws import draw, new_draws
from penstock.engines.simulated.compiled.event_heap import EVENT, push
from penstock.engines.simulated.compiled.outputs import new_outputs
from penstock.engines.simulated.compiled.records import NONE, RATE, Records
from penstock.engines.simulated.rows.arrivals import next_arrival_s
from penstock.engines.simulated.rows.calls import count_waiting, groups_in_flight
from penstock.engines.simulated.rows.layout import row_layout
from penstock.engines.simulated.rows.loop import POOL_FULL, run
from penstock.engines.simulated.rows.records import (
    ARRIVALS,
    BLOCKED,
    BUSY,
    BY_KEY,
    DOWN,
    IDLE,
    ROUND_ROBIN,
    STATUS,
    RowState,
)
from penstock.engines.simulated.rows.routing import send
from penstock.engines.simulated.rows.row_pool import RowList, enlarged_pool, filled_pool, prepend_row, row_list
from penstock.engines.simulated.source_load import RateSteps, operator_distributions, source_loads
from penstock.engines.simulated.stations import SimulatedStation, stations
from penstock.plan import Plan

_SPARE_PLACES = 1024
_SERVICE_FIELDS = ("state", "born_s", "rows", "position", "began_s", "due_s", "stretch")


@dataclass(slots=True)
class _StationRows:
    """The rows of a station at a change of plan."""

    waiting: RowList  # includes rows in service unless the station continues unchanged
    replicas: Records | None  # replicas of a station that continues unchanged
    source_log: RowList | None


class RowSimulation:
    """Simulates every row: each station has queues and replicas."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan, *, seed: int) -> None:
        self._flow = flow
        self._behaviour = behaviour
        self._names = [operator.name for operator in flow.operators]
        self._index = {name: i for i, name in enumerate(self._names)}
        self._loads = source_loads(flow, behaviour)
        self._sources = list(self._loads)
        self.counts = SimulationCounts.zero(len(self._names))
        self._draws = new_draws(operator_distributions(flow, behaviour), seed=seed, streams=3 * len(self._names))
        self._outputs = new_outputs(flow, behaviour)
        self._redistribution = np.random.default_rng([seed, 1])  # assigns waiting rows to queues after a change of plan
        self._status = np.zeros(1, STATUS)
        self._arrivals = self._first_arrivals()
        self._set_rates()
        self._suspended_pipelines: frozenset[str] = frozenset()
        self._suspended_executors: frozenset[int] = frozenset()
        pairs = sum(len(flow[name].inputs) for name in self._names if behaviour.of(name).pairs)
        self._lay_out(plan, {}, [(np.zeros(0), np.zeros(0, np.int64))] * pairs)

    # ---- the SimulationMode protocol

    @property
    def now_s(self) -> float:
        return float(self._status["now_s"][0])

    def advance(self, until_s: float) -> None:
        while run(self._layout, self._state(), self._draws, self.counts, until_s) == POOL_FULL:
            self._enlarge_pool()

    def change_plan(self, plan: Plan) -> None:
        for number in range(len(self._stations)):
            count_waiting(self._layout, self.counts, number, self.now_s)
        unchanged = {(station.operators, station.bundles) for station in stations(self._flow, plan, self._behaviour)}
        rows = self._rows_by_station(unchanged)
        pairs = [row_list(self._pool, self._pairs, i) for i in range(len(self._pairs))]
        self._lay_out(plan, rows, pairs)

    def suspend(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        self._suspended_pipelines, self._suspended_executors = frozenset(pipelines), frozenset(executors)
        self._reschedule()

    def set_rate(self, source: str, rates: RateSteps) -> None:
        """Change the rate of a source. The elapsed part of the current gap stays elapsed."""
        at, load, now_s = self._sources.index(source), self._loads[source], self.now_s
        arrivals = self._arrivals
        elapsed = 0.0
        if load.rates is not None:
            elapsed = load.rates.rows_between(arrivals["since_s"][at], now_s) * load.gaps_per_row
        arrivals["gap"][at] = max(0.0, arrivals["gap"][at] - elapsed)
        arrivals["since_s"][at] = now_s
        self._loads[source] = dataclasses.replace(load, rates=rates)
        self._set_rates()
        self._reschedule()

    def waiting_rows(self) -> np.ndarray:
        result = np.zeros(len(self._names), np.int64)
        operators = self._layout.operators
        for number, station in enumerate(self._stations):
            at = self._index[station.name]
            result[at] = self._layout.stations["waiting_rows"][number] * operators["inputs"][at]
        for at, (first, size) in enumerate(operators[["pair_first", "pair_size"]]):
            result[at] += self._pairs["size"][first : first + size].sum()
        return result

    def in_service_rows(self) -> np.ndarray:
        result = np.zeros(len(self._names), np.int64)
        for replica in self._layout.replicas[self._layout.replicas["rows"] > 0]:
            operator = self._operator_of(replica)
            result[operator] += replica["rows"] * self._layout.operators["inputs"][operator]
        return result

    def counted_until_s(self) -> np.ndarray:
        return np.full(len(self._names), self.now_s)

    def is_idle(self) -> bool:
        replicas = self._layout.replicas
        has_rows = (
            replicas["rows"].any() or replicas["unsent_rows"].any() or self._layout.stations["waiting_rows"].any()
        )
        return not self._arrivals["rows_left"].any() and not has_rows

    def working_threads(self, operator: str) -> np.ndarray:
        """Return how many threads of each replica of the plan have a row in service, at the station of an operator."""
        number = next(n for n, station in enumerate(self._stations) if operator in station.operators)
        replicas = self._layout.replicas
        own = (replicas["station"] == number) & (replicas["is_source"] == 0)
        working = replicas["bundle"][own & np.isfinite(replicas["due_s"])]
        return np.bincount(working, minlength=int(replicas["bundle"][own].max()) + 1)

    # ---- arrivals

    def _first_arrivals(self) -> Records:
        arrivals = np.zeros(len(self._sources), ARRIVALS)
        for at, name in enumerate(self._sources):
            load, operator = self._loads[name], self._index[name]
            arrivals["operator"][at] = operator
            arrivals["rows_left"][at] = UNLIMITED_ROWS if load.rows is None else load.rows
            if load.rates is not None:
                arrivals["gap"][at] = draw(self._draws, 2 * operator, 3 * operator)
        return arrivals

    def _set_rates(self) -> None:
        """Convert rows/s to arrivals/s, and compute the next arrival of each source."""
        rates: list[tuple[float, float]] = []
        for at, name in enumerate(self._sources):
            load = self._loads[name]
            steps = load.rates or RateSteps.constant(math.inf)
            self._arrivals["rate_first"][at], self._arrivals["rate_size"][at] = len(rates), len(steps.from_s)
            # Rates that are all 0 must not repeat: the search for the next arrival would never end.
            repeats = steps.repeat_s is not None and any(steps.rows_per_s)
            self._arrivals["repeat_s"][at] = steps.repeat_s if repeats else math.inf
            rates += [(s, r * load.gaps_per_row) for s, r in zip(steps.from_s, steps.rows_per_s, strict=True)]
        self._rates = np.array(rates, RATE)
        for at in range(len(self._sources)):
            self._arrivals["due_s"][at] = next_arrival_s(self._arrivals, self._rates, at)

    # ---- changes of the plan

    def _lay_out(self, plan: Plan, rows: dict[str, _StationRows], pairs: list[RowList]) -> None:
        self._stations = stations(self._flow, plan, self._behaviour)
        self._layout = row_layout(self._flow, plan, self._behaviour, self._stations)
        self._layout.stations["waiting_since_s"] = self.now_s
        replicas = len(self._layout.replicas)
        self._executor_of = np.array([i for station in self._stations for i in _executors(station)], np.int64)
        self._cores = np.zeros(int(self._layout.replicas["pool"].max()) + 1)
        self._runnable = np.zeros(replicas + 1, np.int64)
        self._events = np.zeros(replicas + len(self._sources) + 1, EVENT)
        self._fill_queues(rows, pairs)
        self._reschedule()

    def _fill_queues(self, rows: dict[str, _StationRows], pairs: list[RowList]) -> None:
        """Put the rows of the old stations into the queues of the stations that contain their operators now."""
        layout = self._layout
        parts: list[list[RowList]] = [[] for _ in self._stations]
        for held in rows.values():
            born_s, operators = held.waiting
            for operator in np.unique(operators):
                chosen = operators == operator
                parts[layout.operators["station"][operator]].append((born_s[chosen], operators[chosen]))
        queues: list[RowList] = []
        for number, station in enumerate(self._stations):
            before = rows.get(station.name)
            if before is not None and before.source_log is not None:
                queues.append(before.source_log)
                layout.stations["waiting_rows"][number] = before.source_log[1].sum()
                continue
            if before is not None and before.replicas is not None:
                own = slice(layout.stations["first_replica"][number], None)
                for field in _SERVICE_FIELDS:
                    layout.replicas[field][own][: station.replicas] = before.replicas[field]
            born_s = np.concatenate([np.zeros(0), *(part[0] for part in parts[number])])
            operator = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts[number])])
            order = np.argsort(born_s, kind="stable") if len(parts[number]) > 1 else np.arange(len(born_s))
            layout.stations["waiting_rows"][number] = len(born_s)
            queues += self._distributed(number, station, born_s[order], operator[order])
        self._pool, self._queues, self._pairs = filled_pool(queues, pairs, spare=_SPARE_PLACES)
        used = int(self._queues["size"].sum() + self._pairs["size"].sum())
        self._status["first_free"], self._status["free_places"] = used, len(self._pool) - used

    def _distributed(
        self, number: int, station: SimulatedStation, born_s: np.ndarray, operator: np.ndarray
    ) -> list[RowList]:
        """Distribute waiting rows over the queues of a station."""
        dispatch, queues = self._layout.stations["dispatch"][number], self._layout.stations["queues"][number]
        if dispatch == BY_KEY:
            queue_of = self._redistribution.choice(queues, size=len(born_s), p=np.array(station.key_shares))
        elif dispatch == ROUND_ROBIN:
            queue_of = np.arange(len(born_s)) % queues
        else:
            return [(born_s, operator)]
        return [(born_s[queue_of == queue], operator[queue_of == queue]) for queue in range(queues)]

    def _rows_by_station(
        self, unchanged: Collection[tuple[tuple[str, ...], tuple[int, ...]]]
    ) -> dict[str, _StationRows]:
        """Collect the rows of each station, rows in service first. An unchanged station keeps its rows in service."""
        result = {}
        self._send_blocked_rows()
        for number, (station, record) in enumerate(zip(self._stations, self._layout.stations, strict=True)):
            first = record["first_queue"]
            lists = [row_list(self._pool, self._queues, queue) for queue in range(first, first + record["queues"])]
            if self._flow[station.name].kind is Kind.SOURCE:
                result[station.name] = _StationRows((np.zeros(0), np.zeros(0, np.int64)), None, lists[0])
                continue
            own = self._layout.replicas[self._layout.replicas["station"] == number]
            continues = (station.operators, station.bundles) in unchanged
            in_service = [] if continues else [replica for replica in own for _ in range(replica["rows"])]
            born_s = np.array([replica["born_s"] for replica in in_service], float)
            operator = np.array([self._operator_of(replica) for replica in in_service], np.int64)
            waiting = (
                np.concatenate([born_s, *(queue[0] for queue in lists)]),
                np.concatenate([operator, *(queue[1] for queue in lists)]),
            )
            result[station.name] = _StationRows(waiting, own if continues else None, None)
        return result

    def _send_blocked_rows(self) -> None:
        """Send the rows of blocked replicas although the queues are full: the replicas may not exist afterwards."""
        unbounded = self._layout.streams.copy()
        unbounded["is_bounded"] = 0
        layout = self._layout._replace(streams=unbounded)
        for replica in np.flatnonzero(layout.replicas["unsent_rows"] > 0):
            layout.replicas["state"][replica] = DOWN
            sent = BUSY
            while sent != IDLE:
                if self._status["free_places"][0] < layout.replicas["unsent_rows"][replica] * len(unbounded):
                    self._enlarge_pool()
                self._status["runnable"] = 0
                sent = send(layout, self._state(), self._draws, self.counts, int(replica))

    # ---- consistency of the arrays

    def _reschedule(self) -> None:
        """Stop suspended replicas, make all others that have no service runnable, and rebuild the event heap."""
        replicas, records = self._layout.replicas, self._layout.stations
        down = np.isin(self._executor_of, list(self._suspended_executors))
        if self._suspended_pipelines:
            suspended = np.array([station.pipeline in self._suspended_pipelines for station in self._stations])
            down |= suspended[replicas["station"]]
        for replica in np.flatnonzero(down & (replicas["state"] != DOWN)):
            self._requeue(int(replica))
        blocked = replicas["state"] == BLOCKED
        replicas["state"][down] = DOWN
        records["blocked_head"] = records["blocked_tail"] = NONE
        self._queues["idle"] = NONE
        in_service = np.isfinite(replicas["due_s"])
        self._groups = groups_in_flight(self._layout, self.now_s)
        self._cores[:] = np.bincount(
            replicas["pool"], weights=replicas["core_share"] * in_service, minlength=len(self._cores)
        )
        runnable = np.flatnonzero(~down & ~in_service)
        replicas["state"][runnable] = BUSY
        # The loop takes runnable replicas from the end, so replicas with unsent rows continue first.
        self._runnable[: len(runnable)] = np.concatenate([runnable[~blocked[runnable]], runnable[blocked[runnable]]])
        self._status["runnable"] = len(runnable)
        self._status["events"] = 0
        for replica in np.flatnonzero(in_service):
            push(self._events, self._status, replicas["due_s"][replica], int(replica))
        for source in np.flatnonzero(self._arrivals["rows_left"] > 0):
            push(self._events, self._status, self._arrivals["due_s"][source], -1 - int(source))

    def _requeue(self, replica: int) -> None:
        """Put the rows in service of a replica back to the head of its queue."""
        record = self._layout.replicas[replica]
        record["due_s"] = math.inf
        if record["is_source"]:
            return
        station = self._layout.stations[record["station"]]
        count_waiting(self._layout, self.counts, int(record["station"]), self.now_s)
        queue = int(record["queue"])
        operator = self._operator_of(record) if record["rows"] else 0
        for _ in range(record["rows"]):
            if self._status["free_places"][0] < 1:
                self._enlarge_pool()
            prepend_row(self._state(), self._queues, queue, record["born_s"], operator)
            station["waiting_rows"] += 1
        record["rows"] = 0

    def _state(self) -> RowState:
        return RowState(
            queues=self._queues,
            pairs=self._pairs,
            pool=self._pool,
            arrivals=self._arrivals,
            rates=self._rates,
            outputs=self._outputs,
            events=self._events,
            groups=self._groups,
            cores=self._cores,
            runnable=self._runnable,
            status=self._status,
        )

    def _operator_of(self, replica: np.void) -> int:
        """Return the operator that a replica executes."""
        return int(self._layout.chain[self._layout.stations["chain_first"][replica["station"]] + replica["position"]])

    def _enlarge_pool(self) -> None:
        self._pool = enlarged_pool(self._pool, self._status)


def _executors(station: SimulatedStation) -> list[int]:
    return [slot.executor for slot in station.slots] or [NONE] * station.replicas
