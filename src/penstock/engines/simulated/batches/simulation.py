"""The micro-batch simulation: owns the arrays of the compiled loop and rebuilds them when the plan changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from penstock.dataflow import Dataflow
from penstock.engines.simulated.batches.layout import QueryPlan, empty_logs, log_index, query_plan
from penstock.engines.simulated.batches.logs import append_arrivals, append_cohort
from penstock.engines.simulated.batches.loop import assign_slots, run
from penstock.engines.simulated.batches.records import (
    COHORT,
    COHORTS,
    FREE,
    HALTED,
    INFLOW,
    LOST,
    SETTINGS,
    SLOT,
    STATUS,
    WAITING,
    WORK,
    BatchState,
)
from penstock.engines.simulated.behaviour import UNLIMITED_ROWS, Behaviour, SimulatedBatchCosts
from penstock.engines.simulated.compiled.counts import SimulationCounts
from penstock.engines.simulated.compiled.draws import new_draws
from penstock.engines.simulated.compiled.event_heap import EVENT, push
from penstock.engines.simulated.compiled.outputs import abort_waiting_rows, new_outputs
from penstock.engines.simulated.compiled.records import RATE, Records
from penstock.engines.simulated.distributions import BehaviourError
from penstock.engines.simulated.source_load import RateSteps, operator_distributions, source_loads
from penstock.plan import Plan

# Fields of a query that does not change with the plan: its batch continues.
_BATCH_FIELDS = (
    "phase",
    "stage",
    "finished_tasks",
    "running_tasks",
    "ready_head",
    "ready_tasks",
    "due_s",
    "began_s",
    "task_s",
    "batch_rows",
    "limit_rows",
    "stretch",
)


class BatchSimulation:
    """Simulates micro-batches: queries share the slots of the plan."""

    def __init__(self, flow: Dataflow, behaviour: Behaviour, plan: Plan, *, seed: int) -> None:
        for operator in flow.operators:
            if behaviour.of(operator.name).pairs:
                raise BehaviourError(
                    f"Operator '{operator.name}' pairs rows, which mode 'micro-batch' does not simulate; use mode "
                    "'row-by-row'."
                )
        self._flow = flow
        self._behaviour = behaviour
        self._names = [operator.name for operator in flow.operators]
        self._loads = source_loads(flow, behaviour)
        self.counts = SimulationCounts.zero(len(self._names))
        self._draws = new_draws(operator_distributions(flow, behaviour), seed=seed, streams=3 * len(self._names))
        self._outputs = new_outputs(flow, behaviour)
        self._logs = empty_logs(flow)
        self._cohorts = np.zeros(len(self._logs) * COHORTS, COHORT)
        self._work = np.zeros(len(self._names), WORK)
        self._settings = _settings(behaviour.batch)
        self._status = np.zeros(1, STATUS)
        self._suspended_pipelines: frozenset[str] = frozenset()
        self._suspended_executors: frozenset[int] = frozenset()
        self._inflows = self._new_inflows()
        self._set_rates()
        self._queries = query_plan(flow, plan, behaviour)
        self._slots = _free_slots(plan.slots)
        self._ready_s = _ready_tasks(self._queries)
        self._connect()
        self._append_initial_rows()

    # ---- the SimulationMode protocol

    @property
    def now_s(self) -> float:
        return float(self._status["now_s"][0])

    def advance(self, until_s: float) -> None:
        run(self._queries.layout, self._state(), self._draws, self.counts, until_s)

    def change_plan(self, plan: Plan) -> None:
        """Use another plan. The batches of unchanged queries continue; other batches are aborted."""
        old, old_slots, old_ready_s = self._queries, self._slots, self._ready_s
        new = query_plan(self._flow, plan, self._behaviour)
        self._slots = _free_slots(plan.slots)
        self._ready_s = _ready_tasks(new)
        new_number = {pipeline: number for number, pipeline in enumerate(new.pipelines)}
        for number, pipeline in enumerate(old.pipelines):
            if pipeline in new_number:
                self._continue_batch(old, number, old_ready_s, new, new_number[pipeline])
                self._move_tasks(old_slots, number, new, new_number[pipeline])
            else:
                self._abort(old, number)
        self._queries = new
        self._connect()

    def suspend(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        self._suspended_pipelines, self._suspended_executors = frozenset(pipelines), frozenset(executors)
        self._reschedule()

    def set_rate(self, source: str, rates: RateSteps) -> None:
        at = list(self._loads).index(source)
        append_arrivals(self._state(), self._draws, self.counts, at, self.now_s)
        self._loads[source] = dataclasses.replace(self._loads[source], rates=rates)
        self._set_rates()

    def waiting_rows(self) -> np.ndarray:
        result = np.zeros(len(self._names), np.int64)
        np.add.at(result, self._logs["operator"], self._logs["rows"] - self._logs["taken_rows"])
        return result

    def in_service_rows(self) -> np.ndarray:
        """Return the rows in the current batch of each operator's query, counted where the query reads them."""
        result = np.zeros(len(self._names), np.int64)
        np.add.at(result, self._logs["operator"], self._logs["taken_rows"])
        return result

    def counted_until_s(self) -> np.ndarray:
        queries = self._queries.layout.queries
        has_no_batch = np.isin(queries["phase"], (WAITING, HALTED))
        until_s = np.where(has_no_batch, self.now_s, queries["began_s"])
        return until_s[self._queries.query_of]  # type: ignore[no-any-return]

    def is_idle(self) -> bool:
        return not self._logs["rows"].any() and not self._inflows["rows_left"].any()

    # ---- arrivals

    def _new_inflows(self) -> Records:
        logs = log_index(self._flow)
        inflows = np.zeros(len(self._loads), INFLOW)
        for at, (name, load) in enumerate(self._loads.items()):
            inflows["operator"][at], inflows["log"][at] = self._names.index(name), logs[name, name]
            inflows["rows_left"][at] = UNLIMITED_ROWS if load.rows is None else load.rows
        return inflows

    def _append_initial_rows(self) -> None:
        """Append the rows of sources that have no rate: these rows are available from the start."""
        for at, load in enumerate(self._loads.values()):
            if load.rates is None and load.rows is not None:
                append_cohort(self._state(), int(self._inflows["log"][at]), load.rows, 0.0, 0.0)
                self.counts.operators["arrived"][self._inflows["operator"][at]] += load.rows
                self._inflows["rows_left"][at] = 0

    def _set_rates(self) -> None:
        """Convert rows/s to arrivals/s."""
        rates: list[tuple[float, float]] = []
        for at, load in enumerate(self._loads.values()):
            steps = load.rates or RateSteps.constant(0.0)
            self._inflows["rate_first"][at], self._inflows["rate_size"][at] = len(rates), len(steps.from_s)
            self._inflows["repeat_s"][at] = steps.repeat_s or math.inf
            arrivals_per_row = load.gaps_per_row / load.interarrival.mean
            rates += [(s, r * arrivals_per_row) for s, r in zip(steps.from_s, steps.rows_per_s, strict=True)]
        self._rates = np.array(rates, RATE)

    # ---- changes of the plan

    def _connect(self) -> None:
        """Create the arrays that depend on the number of queries and slots."""
        self._inflows["query"] = self._queries.query_of[self._inflows["operator"]]
        self._events = np.zeros(len(self._queries.pipelines) + len(self._slots) + 1, EVENT)
        self._free_slots = np.zeros(len(self._slots), np.int64)
        self._reschedule()

    def _continue_batch(
        self, old: QueryPlan, old_number: int, old_ready_s: np.ndarray, new: QueryPlan, new_number: int
    ) -> None:
        before, after = old.layout.queries[old_number], new.layout.queries[new_number]
        for field in _BATCH_FIELDS:
            after[field] = before[field]
        ready_s = old_ready_s[before["ready_first"] :][: before["ready_capacity"]]
        self._ready_s[after["ready_first"] :][: after["ready_capacity"]] = ready_s
        stages = slice(before["first_stage"], before["first_stage"] + before["stages"])
        unassigned = old.layout.stages["unassigned_rows"][stages]
        new.layout.stages["unassigned_rows"][after["first_stage"] :][: after["stages"]] = unassigned

    def _move_tasks(self, old_slots: Records, old_number: int, new: QueryPlan, new_number: int) -> None:
        """Let running tasks keep their slots. Tasks of slots that no longer exist start again."""
        for slot in np.flatnonzero(old_slots["query"] == old_number):
            if slot < len(self._slots):
                self._slots[slot] = old_slots[slot]
                self._slots["query"][slot] = new_number
            else:
                self._restart_task(new, new_number, old_slots["task_s"][slot])

    def _abort(self, queries: QueryPlan, number: int) -> None:
        """Abort the batch of a query. Its rows stay in the logs."""
        record = queries.layout.queries[number]
        own_logs = queries.layout.reads[record["first_log"] : record["first_log"] + record["logs"]]
        self._logs["taken_rows"][own_logs] = 0
        for operator in np.flatnonzero(queries.query_of == number):
            self._work[operator] = np.zeros(1, WORK)[0]
            abort_waiting_rows(self._outputs, int(operator))
        for field in ("ready_tasks", "running_tasks"):
            record[field] = 0
        record["due_s"] = math.inf
        record["phase"] = HALTED

    def _restart_task(self, queries: QueryPlan, number: int, seconds: float) -> None:
        """Make a task that lost its slot ready again."""
        record = queries.layout.queries[number]
        at = (record["ready_head"] + record["ready_tasks"]) % record["ready_capacity"]
        self._ready_s[record["ready_first"] + at] = seconds
        record["ready_tasks"] += 1
        record["running_tasks"] -= 1

    # ---- consistency of the arrays

    def _reschedule(self) -> None:
        """Halt suspended queries, resume the others, restart tasks of lost executors, and rebuild the event heap."""
        self._halt_and_resume()
        queries, slots = self._queries.layout.queries, self._slots
        executor = np.arange(len(slots)) // self._behaviour.cluster.slots_per_executor
        is_lost = np.isin(executor, list(self._suspended_executors))
        for slot in np.flatnonzero(is_lost & (slots["query"] >= 0)):
            self._restart_task(self._queries, int(slots["query"][slot]), float(slots["task_s"][slot]))
        slots["due_s"][is_lost] = math.inf
        slots["query"][is_lost] = LOST
        slots["query"][~is_lost & (slots["query"] == LOST)] = FREE
        self._status["events"] = 0
        for number, due_s in enumerate(queries["due_s"]):
            if math.isfinite(due_s):
                push(self._events, self._status, due_s, number)
        for slot in np.flatnonzero(np.isfinite(slots["due_s"])):
            push(self._events, self._status, slots["due_s"][slot], len(queries) + int(slot))
        free = np.flatnonzero(slots["query"] == FREE)[::-1]
        self._free_slots[: len(free)] = free
        self._status["free_slots"] = len(free)
        self._status["ready_tasks"] = queries["ready_tasks"].sum()
        assign_slots(self._queries.layout, self._state())

    def _halt_and_resume(self) -> None:
        slots = self._slots
        for number, pipeline in enumerate(self._queries.pipelines):
            is_suspended, record = pipeline.name in self._suspended_pipelines, self._queries.layout.queries[number]
            if is_suspended and record["phase"] != HALTED:
                self._abort(self._queries, number)
                slots["due_s"][slots["query"] == number] = math.inf
                slots["query"][slots["query"] == number] = FREE
            elif not is_suspended and record["phase"] == HALTED:
                record["phase"], record["due_s"] = WAITING, self.now_s

    def _state(self) -> BatchState:
        return BatchState(
            logs=self._logs,
            cohorts=self._cohorts,
            inflows=self._inflows,
            rates=self._rates,
            outputs=self._outputs,
            slots=self._slots,
            free_slots=self._free_slots,
            ready_s=self._ready_s,
            work=self._work,
            settings=self._settings,
            events=self._events,
            status=self._status,
        )


def _settings(costs: SimulatedBatchCosts) -> Records:
    max_rows = UNLIMITED_ROWS if costs.max_rows is None else costs.max_rows
    target_s = math.inf if costs.target_s is None else costs.target_s
    return np.array([(costs.batch_s, costs.task_s, costs.trigger_s, costs.poll_s, max_rows, target_s)], SETTINGS)


def _free_slots(count: int) -> Records:
    slots = np.zeros(count, SLOT)
    slots["query"], slots["due_s"] = FREE, math.inf
    return slots


def _ready_tasks(queries: QueryPlan) -> np.ndarray:
    return np.zeros(int(queries.layout.queries["ready_capacity"].sum()))
