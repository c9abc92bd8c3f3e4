"""Operators that work in micro-batches: the arrays of the compiled loop, and how they change with the plan."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated import batches_loop as loop
from penstock.engines.simulated.batch_records import (
    COHORT,
    COHORTS,
    FREE,
    GONE,
    HALTED,
    INFLOW,
    OPERATOR,
    SETTINGS,
    SIZES,
    SLOT,
    WAITING,
)
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.counts import no_counts
from penstock.engines.simulated.distributions import BehaviourError
from penstock.engines.simulated.draws import laws, streams
from penstock.engines.simulated.heap import push
from penstock.engines.simulated.logs import add_cohort, append_until
from penstock.engines.simulated.queries import Queries, empty_logs, log_index, queries
from penstock.engines.simulated.rates import RateSteps
from penstock.engines.simulated.records import EVENT, RATE
from penstock.engines.simulated.sources import appending, gaps_a_row, laws_of
from penstock.plan import Plan

_NO_END = 2**62


class MicroBatches:
    """A world in which queries share slots."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan, *, seed: int) -> None:
        for operator in flow.operators:
            if behaviour.of(operator.name).pairs:
                raise BehaviourError(f"'{operator.name}' pairs rows one by one, which micro-batches do not simulate")
        self._flow = flow
        self._behaviour = behaviour
        self._names = [operator.name for operator in flow.operators]
        self._appending = appending(flow, behaviour)
        self.counts = no_counts(len(self._names))
        self._laws, self._values = laws(law for name in self._names for law in laws_of(flow, behaviour, name))
        self._rng = streams(seed, 3 * len(self._names))
        self._logs = empty_logs(flow)
        self._cohorts = np.zeros(len(self._logs) * COHORTS, COHORT)
        self._sinks = np.array([operator.kind is Kind.SINK for operator in flow.operators])
        self._work = np.zeros(len(self._names), OPERATOR)
        self._one = np.zeros(1, SIZES)
        costs = behaviour.batch
        most = _NO_END if costs.most_rows is None else costs.most_rows
        self._settings = np.array(
            [(costs.batch_s, costs.task_s, costs.trigger_s, costs.poll_s, most, costs.aim_s or math.inf)], SETTINGS
        )
        self._halted: frozenset[str] = frozenset()
        self._dead: frozenset[int] = frozenset()
        self._first_rows()
        self._made: Queries | None = None
        self._slots = np.zeros(0, SLOT)
        self._ready_s = np.zeros(0)
        self._lay_out(plan)

    # ---- what a world offers

    @property
    def now_s(self) -> float:
        return float(self._one["now"][0])

    def advance(self, until_s: float) -> None:
        made = self._queries
        loop.run(
            made.queries,
            made.stages,
            made.chain,
            made.shares,
            made.reads,
            made.outs,
            made.readers,
            self._sinks,
            self._laws,
            self._values,
            self._logs,
            self._cohorts,
            self._inflows,
            self._rates,
            self._slots,
            self._free,
            self._ready_s,
            self._work,
            self._settings,
            self._events,
            self._one,
            self.counts.operators,
            self.counts.stays,
            self.counts.stay_sum,
            self._rng,
            until_s,
        )

    @property
    def _queries(self) -> Queries:
        assert self._made is not None
        return self._made

    def replan(self, plan: Plan) -> None:
        self._lay_out(plan)

    def stand_still(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        self._halted, self._dead = frozenset(pipelines), frozenset(executors)
        self._settle()

    def set_rate(self, source: str, rates: RateSteps) -> None:
        at = list(self._appending).index(source)
        append_until(
            self._inflows,
            self._rates,
            self._laws,
            self._values,
            self._logs,
            self._cohorts,
            self.counts.operators,
            self._rng,
            at,
            self.now_s,
        )
        self._appending[source] = dataclasses.replace(self._appending[source], rates=rates)
        self._set_rates()

    def waiting(self) -> np.ndarray:
        """By operator: rows in its logs that no batch has taken yet."""
        found = np.zeros(len(self._names), np.int64)
        np.add.at(found, self._logs["operator"], self._logs["rows"] - self._logs["taken"])
        return found

    def in_hand(self) -> np.ndarray:
        """By operator: rows of its logs that are in a batch at hand."""
        found = np.zeros(len(self._names), np.int64)
        np.add.at(found, self._logs["operator"], self._logs["taken"])
        return found

    def idle(self) -> bool:
        return not self._logs["rows"].any() and not self._inflows["left"].any()

    # ---- arrivals

    def _first_rows(self) -> None:
        logs = log_index(self._flow)
        self._inflows = np.zeros(len(self._appending), INFLOW)
        for at, (name, one) in enumerate(self._appending.items()):
            operator, log = self._names.index(name), logs[name, name]
            self._inflows["operator"][at], self._inflows["log"][at] = operator, log
            self._inflows["left"][at] = _NO_END if one.rows is None else one.rows
            if one.rates is None and one.rows is not None:  # all there from the start
                add_cohort(self._logs, self._cohorts, log, one.rows, 0.0, 0.0)
                self.counts.operators["arrived"][operator] += one.rows
                self._inflows["left"][at] = 0
        self._set_rates()

    def _set_rates(self) -> None:
        """Rates of gaps: rows/s x gaps a row, in units of the mean gap."""
        rates: list[tuple[float, float]] = []
        for at, one in enumerate(self._appending.values()):
            steps = one.rates or RateSteps(from_s=(0.0,), rows_per_s=(0.0,))
            self._inflows["rate_first"][at], self._inflows["rate_size"][at] = len(rates), len(steps.from_s)
            self._inflows["repeat_s"][at] = steps.repeat_s or math.inf
            per_row = gaps_a_row(one) / one.interarrival.mean
            rates += [(s, r * per_row) for s, r in zip(steps.from_s, steps.rows_per_s, strict=True)]
        self._rates = np.array(rates, RATE)

    # ---- the layout of a plan

    def _lay_out(self, plan: Plan) -> None:
        """Batches of queries that stay as they are go on; those of others are begun anew and do not count."""
        before, old_slots = self._made, self._slots
        made = queries(self._flow, plan, self._behaviour)
        ready = self._ready_s
        self._ready_s = np.zeros(int(made.queries["ready_room"].sum()))
        self._slots = np.zeros(plan.slots, SLOT)
        self._slots["query"], self._slots["due"] = FREE, math.inf
        new_number = {pipeline: number for number, pipeline in enumerate(made.pipelines)}
        for number, pipeline in enumerate(before.pipelines if before is not None else ()):
            assert before is not None
            to = new_number.get(pipeline)
            if to is None:
                self._abort(before, number)
                continue
            old, new = before.queries[number], made.queries[to]
            for field in ("phase", "stage", "finished", "running", "ready_head", "ready", "due", "began", "cap"):
                new[field] = old[field]
            new["task_s"], new["given"] = old["task_s"], old["given"]
            self._ready_s[new["ready_first"] :][: new["ready_room"]] = ready[old["ready_first"] :][: old["ready_room"]]
            stages = slice(old["first_stage"], old["first_stage"] + old["stages"])
            made.stages["left"][new["first_stage"] :][: new["stages"]] = before.stages["left"][stages]
            for slot in np.flatnonzero(old_slots["query"] == number):
                if slot < len(self._slots):
                    self._slots[slot] = old_slots[slot]
                    self._slots["query"][slot] = to
                else:
                    self._again(made, to, old_slots["seconds"][slot])
        self._made = made
        self._inflows["query"] = made.query_of[self._inflows["operator"]]
        self._events = np.zeros(len(made.queries) + len(self._slots) + 1, EVENT)
        self._free = np.zeros(len(self._slots), np.int64)
        self._settle()

    def _abort(self, made: Queries, query: int) -> None:
        """What a batch had taken is in its logs still; it is only no longer taken."""
        record = made.queries[query]
        self._logs["taken"][made.reads[record["first_log"] : record["first_log"] + record["logs"]]] = 0
        self._work[np.flatnonzero(made.query_of == query)] = np.zeros(1, OPERATOR)
        for field in ("ready", "running"):
            record[field] = 0
        record["due"] = math.inf
        record["phase"] = HALTED

    def _again(self, made: Queries, query: int, seconds: float) -> None:
        """A task that lost its slot waits for another one."""
        record = made.queries[query]
        at = (record["ready_head"] + record["ready"]) % record["ready_room"]
        self._ready_s[record["ready_first"] + at] = seconds
        record["ready"] += 1
        record["running"] -= 1

    # ---- keeping the arrays in order

    def _settle(self) -> None:
        made, slots, now = self._queries, self._slots, self.now_s
        executor = np.arange(len(slots)) // self._behaviour.cluster.slots_per_executor
        gone = np.isin(executor, list(self._dead))
        for number, pipeline in enumerate(made.pipelines):
            halted, record = pipeline.name in self._halted, made.queries[number]
            if halted and record["phase"] != HALTED:
                self._abort(made, number)
                slots["due"][slots["query"] == number] = math.inf
                slots["query"][slots["query"] == number] = FREE
            elif not halted and record["phase"] == HALTED:
                record["phase"], record["due"] = WAITING, now
        for slot in np.flatnonzero(gone & (slots["query"] >= 0)):
            self._again(made, int(slots["query"][slot]), float(slots["seconds"][slot]))
        slots["due"][gone] = math.inf
        slots["query"][gone] = GONE
        slots["query"][~gone & (slots["query"] == GONE)] = FREE
        self._one["events"] = 0
        for number, due in enumerate(made.queries["due"]):
            if math.isfinite(due):
                push(self._events, self._one, due, number)
        for slot in np.flatnonzero(np.isfinite(slots["due"])):
            push(self._events, self._one, slots["due"][slot], len(made.queries) + int(slot))
        free = np.flatnonzero(slots["query"] == FREE)[::-1]
        self._free[: len(free)] = free
        self._one["free"] = len(free)
        self._one["ready"] = made.queries["ready"].sum()
        loop.give_slot(made.queries, slots, self._free, self._ready_s, self._events, self._one)
