"""One engine for all trials: the next trial changes the plan of the running engine instead of starting another one.

A change of plan takes a few seconds on Spark. A start takes longer, and the first batches after it are slow because
Python workers and code are cold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.control.loop import Clock
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Applied, RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.plan import Plan
from penstock.study.mst.throughput import mix
from penstock.study.mst.trial_engine import recovered

_DRAIN_S = 10.0  # longest time to wait until the rows of the previous trial are processed
_DRAIN_STEP_S = 0.1


class ContinuedEngine:
    """Makes engines of trials that all use one running engine, one after another."""

    def __init__(self, create: Callable[[Plan], RunnableEngine], clock: Clock) -> None:
        self._create, self._clock = create, clock
        self._running: RunnableEngine | None = None

    def trial(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
        """Return an engine for one trial. Its start applies the plan, and its stop stops the input only."""
        if self._running is None:
            engine = self._create(plan)
            return _ContinuedTrial(engine, plan, self._clock, start=lambda: self._start(engine)), self._clock
        return _ContinuedTrial(self._running, plan, self._clock, start=None), self._clock

    def _start(self, engine: RunnableEngine) -> None:
        engine.start()
        self._running = engine

    def close(self) -> None:
        """Stop the running engine."""
        if self._running is not None:
            engine, self._running = self._running, None
            engine.stop()


class _ContinuedTrial:
    """The running engine during one trial. The totals of its windows begin with the trial."""

    def __init__(self, engine: RunnableEngine, plan: Plan, clock: Clock, *, start: Callable[[], None] | None) -> None:
        self._engine, self._plan, self._clock, self._start = engine, plan, clock, start
        self._before: Mapping[str, OperatorWindow] = {}

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
        if self._start is not None:
            self._start()
        else:
            self._engine.apply(self._plan)
        if self._engine.plan.slots < self._plan.slots:
            raise PenstockError(
                f"A trial needs {self._plan.slots} slots, but only {self._engine.plan.slots} are available; check that "
                "all executors are running, and continue the study with the same command."
            )
        self._stop_input()
        self._before = {operator.operator: operator for operator in self._drained().operators}

    def stop(self) -> None:
        self._stop_input()

    def observe(self) -> Window:
        window = self._engine.observe()
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

    def _stop_input(self) -> None:
        for name in mix(self._engine.flow):
            self._engine.set_rate(name, 0.0)

    def _drained(self) -> Window:
        """Wait until no row waits, for a limited time, and return the last window."""
        for _ in range(round(_DRAIN_S / _DRAIN_STEP_S)):
            self._clock.sleep(_DRAIN_STEP_S)
            recovered(self._engine, "between two trials")
            window = self._engine.observe()
            if not any(operator.backlog_rows for operator in window.operators):
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
