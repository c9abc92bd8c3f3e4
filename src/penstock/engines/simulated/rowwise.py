"""Operators that work row by row: the arrays of the compiled loop, and how they change with the plan."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated import rowwise_loop as loop
from penstock.engines.simulated.arrivals import next_arrival
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.counts import no_counts
from penstock.engines.simulated.draws import draw, laws, streams
from penstock.engines.simulated.heap import push
from penstock.engines.simulated.pool import List, enlarged, filled, listed, put_first
from penstock.engines.simulated.rates import RateSteps
from penstock.engines.simulated.records import (
    ARRIVALS,
    BLOCKED,
    BUSY,
    BY_SHARE,
    DOWN,
    EVENT,
    IDLE,
    IN_TURN,
    NONE,
    RATE,
    SIZES,
    Records,
)
from penstock.engines.simulated.sources import appending, gaps_a_row, laws_of
from penstock.engines.simulated.stations import Station, layout, stations
from penstock.plan import Plan

_FIRST_POOL = 1024
_NO_END = 2**62
_IN_HAND = ("state", "birth", "rows", "place", "began", "due")


@dataclass(slots=True)
class Held:
    """What a station held when its plan ended: rows that wait, and what its replicas had in hand."""

    birth: np.ndarray
    operator: np.ndarray
    in_hand: Records | None  # replicas of a station that goes on as it was
    log: List | None  # of a source


class RowByRow:
    """A world in which each station has its queue and its replicas."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan, *, seed: int) -> None:
        self._flow = flow
        self._behaviour = behaviour
        self._names = [operator.name for operator in flow.operators]
        self._index = {name: i for i, name in enumerate(self._names)}
        self._appending = appending(flow, behaviour)
        self._sources = list(self._appending)
        self.counts = no_counts(len(self._names))
        self._laws, self._values = laws(law for name in self._names for law in laws_of(flow, behaviour, name))
        self._rng = streams(seed, 3 * len(self._names))
        self._dealer = np.random.default_rng([seed, 1])  # deals waiting rows to queues when a plan changes
        self._one = np.zeros(1, SIZES)
        self._arrivals = self._first_arrivals()
        self._halted: frozenset[str] = frozenset()
        self._dead: frozenset[int] = frozenset()
        lists = sum(len(self._flow[name].inputs) for name in self._names if behaviour.of(name).pairs)
        self._lay_out(plan, {}, [(np.zeros(0), np.zeros(0, np.int64))] * lists)

    # ---- what a world offers

    @property
    def now_s(self) -> float:
        return float(self._one["now"][0])

    def advance(self, until_s: float) -> None:
        while self._run(until_s) == loop.POOL_FULL:
            self._enlarge_pool()

    def _run(self, until_s: float) -> int:
        made = self._layout
        return loop.run(
            made.operators,
            made.stations,
            made.chain,
            made.streams,
            made.shares,
            self._laws,
            self._values,
            made.servers,
            self._queues,
            self._pairs,
            self._rows,
            self._arrivals,
            self._rates,
            self._events,
            self._todo,
            self._one,
            self.counts.operators,
            self.counts.stays,
            self.counts.stay_sum,
            self._rng,
            until_s,
        )

    def replan(self, plan: Plan) -> None:
        """Another plan from now on; rows that wait, also for rows to pair with, go on waiting at their operator."""
        unchanged = {(one.operators, one.replicas) for one in stations(self._flow, plan, self._behaviour)}
        held = self._held(unchanged)
        self._lay_out(plan, held, [listed(self._rows, self._pairs, i) for i in range(len(self._pairs))])

    def stand_still(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        """From now on these pipelines and executors, and only these, do nothing."""
        self._halted, self._dead = frozenset(pipelines), frozenset(executors)
        self._settle()

    def set_rate(self, source: str, rates: RateSteps) -> None:
        """The mass of the gap that has passed stays passed; the rest of it goes by the new rate."""
        at, one, now = self._sources.index(source), self._appending[source], self.now_s
        arrivals = self._arrivals
        passed = 0.0
        if one.rates is not None:
            passed = one.rates.rows_between(arrivals["since"][at], now) * gaps_a_row(one)
        arrivals["gap"][at] = max(0.0, arrivals["gap"][at] - passed)
        arrivals["since"][at] = now
        self._appending[source] = dataclasses.replace(one, rates=rates)
        self._set_rates()
        self._settle()

    def waiting(self) -> np.ndarray:
        """By operator: rows in its queue, in its log, or waiting for one to pair with."""
        found = np.zeros(len(self._names), np.int64)
        operators = self._layout.operators
        for number, station in enumerate(self._stations):
            at = self._index[station.name]
            found[at] = self._layout.stations["waiting"][number] * operators["inputs"][at]
        for at, (first, size) in enumerate(operators[["pair_first", "pair_size"]]):
            found[at] += self._pairs["size"][first : first + size].sum()
        return found

    def in_hand(self) -> np.ndarray:
        """By operator: rows that its replicas work on."""
        found = np.zeros(len(self._names), np.int64)
        for server in self._layout.servers[self._layout.servers["rows"] > 0]:
            operator = self._operator_at(server)
            found[operator] += server["rows"] * self._layout.operators["inputs"][operator]
        return found

    def _operator_at(self, server: np.void) -> int:
        return int(self._layout.chain[self._layout.stations["chain_first"][server["station"]] + server["place"]])

    def idle(self) -> bool:
        servers = self._layout.servers
        held = servers["rows"].any() or servers["left"].any() or self._layout.stations["waiting"].any()
        return not self._arrivals["left"].any() and not held

    # ---- arrivals

    def _first_arrivals(self) -> np.ndarray:
        self._arrivals = np.zeros(len(self._sources), ARRIVALS)
        for at, name in enumerate(self._sources):
            one, operator = self._appending[name], self._index[name]
            self._arrivals["operator"][at] = operator
            self._arrivals["left"][at] = _NO_END if one.rows is None else one.rows
            if one.rates is not None:
                self._arrivals["gap"][at] = draw(self._laws, self._values, 2 * operator, self._rng, 3 * operator)
        self._set_rates()
        return self._arrivals

    def _set_rates(self) -> None:
        """Rates of gaps: rows/s x gaps a row. The next arrivals follow from them."""
        rates: list[tuple[float, float]] = []
        for at, name in enumerate(self._sources):
            one = self._appending[name]
            steps = one.rates or RateSteps(from_s=(0.0,), rows_per_s=(math.inf,))
            self._arrivals["rate_first"][at], self._arrivals["rate_size"][at] = len(rates), len(steps.from_s)
            # A round without a single row would be walked through for ever.
            rounds = steps.repeat_s is not None and any(steps.rows_per_s)
            self._arrivals["repeat_s"][at] = steps.repeat_s if rounds else math.inf
            rates += [(s, r * gaps_a_row(one)) for s, r in zip(steps.from_s, steps.rows_per_s, strict=True)]
        self._rates = np.array(rates, RATE)
        for at in range(len(self._sources)):
            self._arrivals["due"][at] = next_arrival(self._arrivals, self._rates, at)

    # ---- the layout of a plan

    def _lay_out(self, plan: Plan, held: dict[str, Held], pairs: list[List]) -> None:
        self._stations = stations(self._flow, plan, self._behaviour)
        self._layout = layout(self._flow, plan, self._behaviour, self._stations)
        servers = len(self._layout.servers)
        self._executor = np.array([executor for one in self._stations for executor in _executors(one)], np.int64)
        self._todo = np.zeros(servers + 1, np.int64)
        self._events = np.zeros(servers + len(self._sources) + 1, EVENT)
        self._fill(held, pairs)
        self._settle()

    def _fill(self, held: dict[str, Held], pairs: list[List]) -> None:
        """Rows that waited before wait again, each at the station that its operator belongs to now."""
        made = self._layout
        parts: list[list[List]] = [[] for _ in self._stations]
        for one in held.values():
            for operator in np.unique(one.operator):
                of = one.operator == operator
                parts[made.operators["station"][operator]].append((one.birth[of], one.operator[of]))
        queues: list[List] = []
        for number, station in enumerate(self._stations):
            before = held.get(station.name)
            if before is not None and before.log is not None:
                queues.append(before.log)
                made.stations["waiting"][number] = before.log[1].sum()
                continue
            if before is not None and before.in_hand is not None:
                own = slice(made.stations["first_server"][number], None)
                for field in _IN_HAND:
                    made.servers[field][own][: station.replicas] = before.in_hand[field]
            birth = np.concatenate([np.zeros(0), *(part[0] for part in parts[number])])
            operator = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts[number])])
            order = np.argsort(birth, kind="stable") if len(parts[number]) > 1 else np.arange(len(birth))
            made.stations["waiting"][number] = len(birth)
            queues += self._dealt(number, station, birth[order], operator[order])
        self._rows, self._queues, self._pairs = filled(queues, pairs, spare=_FIRST_POOL)
        used = int(self._queues["size"].sum() + self._pairs["size"].sum())
        self._one["free"], self._one["free_rows"] = used, len(self._rows) - used

    def _dealt(self, number: int, station: Station, birth: np.ndarray, operator: np.ndarray) -> list[List]:
        dealing, replicas = self._layout.stations["dealing"][number], station.replicas
        if dealing == BY_SHARE:
            to = self._dealer.choice(replicas, size=len(birth), p=np.array(station.shares))
        elif dealing == IN_TURN:
            to = np.arange(len(birth)) % replicas
        else:
            return [(birth, operator)]
        return [(birth[to == replica], operator[to == replica]) for replica in range(replicas)]

    def _held(self, unchanged: Collection[tuple[tuple[str, ...], int]]) -> dict[str, Held]:
        """Rows of every station, those in hand first; in a station that does not change they stay in hand."""
        found = {}
        self._send_on_what_is_blocked()
        for number, (station, record) in enumerate(zip(self._stations, self._layout.stations, strict=True)):
            queues = range(record["first_queue"], record["first_queue"] + _queues(record["dealing"], station))
            lists = [listed(self._rows, self._queues, queue) for queue in queues]
            if self._flow[station.name].kind is Kind.SOURCE:
                found[station.name] = Held(np.zeros(0), np.zeros(0, np.int64), None, lists[0])
                continue
            own = self._layout.servers[self._layout.servers["station"] == number]
            stays = (station.operators, station.replicas) in unchanged
            hand = [] if stays else [one for one in own for _ in range(one["rows"])]
            birth = np.concatenate([np.array([one["birth"] for one in hand], float), *(one[0] for one in lists)])
            at = [self._operator_at(one) for one in hand]
            operator = np.concatenate([np.array(at, np.int64), *(one[1] for one in lists)])
            found[station.name] = Held(birth, operator, own if stays else None, None)
        return found

    def _send_on_what_is_blocked(self) -> None:
        """Rows that replicas wait to send go over the bound, rather than be lost with the replica."""
        made = self._layout
        unbounded = made.streams.copy()
        unbounded["bounded"] = 0
        for server in np.flatnonzero(made.servers["left"] > 0):
            made.servers["state"][server] = DOWN
            sent = BUSY
            while sent != IDLE:
                if self._one["free_rows"][0] < made.servers["left"][server] * len(unbounded):
                    self._enlarge_pool()
                self._one["todo"] = 0
                sent = loop.send(
                    made.operators,
                    made.stations,
                    made.chain,
                    unbounded,
                    made.shares,
                    made.servers,
                    self._queues,
                    self._pairs,
                    self._rows,
                    self._todo,
                    self._one,
                    self.counts.operators,
                    self._rng,
                    int(server),
                )

    # ---- keeping the arrays in order

    def _settle(self) -> None:
        """Replicas of what stands still put their rows back; all others look for work; events follow from both."""
        servers, records = self._layout.servers, self._layout.stations
        down = np.isin(self._executor, list(self._dead))
        if self._halted:
            halted = np.array([station.pipeline in self._halted for station in self._stations])
            down |= halted[servers["station"]]
        for server in np.flatnonzero(down & (servers["state"] != DOWN)):
            self._put_back(int(server))
        blocked = servers["state"] == BLOCKED
        servers["state"][down] = DOWN
        records["idle"] = records["blocked_head"] = records["blocked_tail"] = NONE
        working = np.isfinite(servers["due"])
        wake = np.flatnonzero(~down & ~working)
        servers["state"][wake] = BUSY
        # From the end: those with rows to send come first.
        self._todo[: len(wake)] = np.concatenate([wake[~blocked[wake]], wake[blocked[wake]]])
        self._one["todo"] = len(wake)
        self._one["events"] = 0
        for server in np.flatnonzero(working):
            push(self._events, self._one, servers["due"][server], int(server))
        for source in np.flatnonzero(self._arrivals["left"] > 0):
            push(self._events, self._one, self._arrivals["due"][source], -1 - int(source))

    def _put_back(self, server: int) -> None:
        """What a replica had in hand goes back to the head of its queue."""
        record = self._layout.servers[server]
        record["due"] = math.inf
        if record["source"]:
            return
        station = self._layout.stations[record["station"]]
        queue = int(station["first_queue"])
        if station["dealing"] in (BY_SHARE, IN_TURN):
            queue += server - int(station["first_server"])
        operator = self._operator_at(record) if record["rows"] else 0
        for _ in range(record["rows"]):
            if self._one["free_rows"][0] < 1:
                self._enlarge_pool()
            put_first(self._rows, self._one, self._queues, queue, record["birth"], operator)
            station["waiting"] += 1
        record["rows"] = 0

    def _enlarge_pool(self) -> None:
        self._rows = enlarged(self._rows, self._one)


def _executors(station: Station) -> list[int]:
    return [seat.executor for seat in station.seats] or [-1] * station.replicas


def _queues(dealing: int, station: Station) -> int:
    return station.replicas if dealing in (BY_SHARE, IN_TURN) else 1
