"""One engine for all trials: the next trial changes the plan of the running engine instead of starting another one.

A change of plan takes a few seconds on Spark. A start takes longer, and the first batches after it are slow because
Python workers and code are cold.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from penstock.control.loop import Clock
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Applied, RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.plan import Plan, with_permanent_cuts
from penstock.study.mst.throughput import mix
from penstock.study.mst.trial_engine import recovered

_DRAIN_S = 10.0  # longest time to wait until the rows of the previous trial are processed
_DRAIN_STEP_S = 0.1
_QUIET_S, _QUIET_BATCHES = 0.3, 1.2
_RECENT_WINDOWS = 16
_WARM_UP_S = 60.0  # longest warm-up
_WARM_UP_STEP_S = 1.0
_WARM_UP_ROWS_PER_SLOT = 10.0  # rows/s
_WARM_BATCHES = 3  # consecutive batches of each query that have not become much shorter
_SHORTER = 0.8


class ContinuedEngine:
    """Makes engines of trials that all use one running engine, one after another."""

    def __init__(self, start: Callable[[], RunnableEngine], clock: Clock) -> None:
        """`start` returns an engine that runs. It is called when the first trial begins."""
        self._start, self.clock = start, clock
        self._running: RunnableEngine | None = None
        self._batches_s: deque[float] = deque(maxlen=_RECENT_WINDOWS)

    def trial(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
        """Return an engine for one trial. Its start applies the plan, and its stop stops the input only."""
        return _ContinuedTrial(self, plan), self.clock

    @property
    def engine(self) -> RunnableEngine:
        """The running engine, which is started first if there is none."""
        if self._running is None:
            self._running = self._start()
        return self._running

    def observe(self) -> Window:
        window = self.engine.observe()
        self._batches_s.append(max((query.batch_max_s or 0.0 for query in window.pipelines), default=0.0))
        return window

    @property
    def longest_batch_s(self) -> float:
        """The longest batch in the latest windows."""
        return max(self._batches_s, default=0.0)

    def close(self) -> None:
        """Stop the running engine."""
        if self._running is not None:
            engine, self._running = self._running, None
            engine.stop()


def warm_up(engine: RunnableEngine, clock: Clock) -> None:
    """Process rows until batches no longer become shorter: the first ones import modules in each worker.

    The plan should have a replica per slot, so that each worker gets rows.
    """
    set_rates(engine, _WARM_UP_ROWS_PER_SLOT * engine.plan.slots)
    shortest_s: dict[str, float] = {}
    warm: dict[str, int] = {}  # query -> consecutive batches that were not much shorter than those before
    for _ in range(round(_WARM_UP_S / _WARM_UP_STEP_S)):
        clock.sleep(_WARM_UP_STEP_S)
        recovered(engine, "during its warm-up")
        window = engine.observe()
        for query in window.pipelines:
            if query.batches and query.batch_s and query.rows_in:
                before_s = shortest_s.get(query.pipeline, math.inf)
                is_shorter = query.batch_s < _SHORTER * before_s
                warm[query.pipeline] = 0 if is_shorter else warm.get(query.pipeline, 0) + query.batches
                shortest_s[query.pipeline] = min(before_s, query.batch_s)
        if all(warm.get(query.pipeline, 0) >= _WARM_BATCHES for query in window.pipelines):
            break
    set_rates(engine, 0.0)


def set_rates(engine: RunnableEngine, rows_per_s: float) -> None:
    """Set the rates of all sources so that they have this sum."""
    for name, part in mix(engine.flow).items():
        engine.set_rate(name, rows_per_s * part)


class _ContinuedTrial:
    """The running engine during one trial. The totals of its windows begin with the trial."""

    def __init__(self, continued: ContinuedEngine, plan: Plan) -> None:
        self._continued, self._plan = continued, plan
        self._before: Mapping[str, OperatorWindow] = {}

    @property
    def _engine(self) -> RunnableEngine:
        return self._continued.engine

    @property
    def flow(self) -> Dataflow:
        return self._engine.flow

    @property
    def plan(self) -> Plan:
        return self._engine.plan

    @property
    def startup_s(self) -> dict[str, float]:
        return self._engine.startup_s

    def start(self) -> None:
        # An earlier trial may have separated two states, which a run cannot merge again.
        self._engine.apply(with_permanent_cuts(self._engine.flow, self._engine.plan, self._plan))
        if self._engine.plan.slots < self._plan.slots:
            raise PenstockError(
                f"A trial needs {self._plan.slots} slots, but only {self._engine.plan.slots} are available; check that "
                "all executors are running, and continue the study with the same command."
            )
        set_rates(self._engine, 0.0)
        self._before = {operator.operator: operator for operator in self._drained().operators}

    def stop(self) -> None:
        set_rates(self._engine, 0.0)

    def observe(self) -> Window:
        window = self._continued.observe()
        operators = tuple(_since(operator, self._before.get(operator.operator)) for operator in window.operators)
        return msgspec.structs.replace(window, operators=operators)

    def apply(self, plan: Plan) -> Applied:
        return self._engine.apply(plan)

    def set_rate(self, source: str, rows_per_s: float) -> None:
        self._engine.set_rate(source, rows_per_s)

    def recover(self) -> tuple[str, ...]:
        return self._engine.recover()

    def failure(self) -> str | None:
        return self._engine.failure()

    def idle(self) -> bool:
        return self._engine.idle()

    def _drained(self) -> Window:
        """Wait until no row waits and no batch contains rows, for a limited time, and return the last window."""
        quiet_s = 0.0
        for _ in range(round(_DRAIN_S / _DRAIN_STEP_S)):
            self._continued.clock.sleep(_DRAIN_STEP_S)
            recovered(self._engine, "between two trials")
            window = self._continued.observe()
            has_rows = any(operator.backlog_rows for operator in window.operators) or any(
                query.rows_in for query in window.pipelines
            )
            quiet_s = 0.0 if has_rows else quiet_s + _DRAIN_STEP_S
            if quiet_s > max(_QUIET_S, _QUIET_BATCHES * self._continued.longest_batch_s):  # a batch would have ended
                break
        return window


def _since(operator: OperatorWindow, before: OperatorWindow | None) -> OperatorWindow:
    """Return the window with totals since an earlier one."""
    if before is None:
        return operator
    return msgspec.structs.replace(
        operator,
        rows_in_total=_difference(operator.rows_in_total, before.rows_in_total),
        rows_out_total=_difference(operator.rows_out_total, before.rows_out_total),
    )


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None else now - (before or 0)
