"""Let a policy choose the replicas of a trial, instead of the paper's rule: it acts until it keeps the plan."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.control.controller import Controller, Settings
from penstock.control.loop import Clock, Loop, Stopped
from penstock.control.policy import Policy, Reason
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import OperatorWindow, Window
from penstock.store import RunStart, Store
from penstock.study.mst.throughput import sustained

_EXCESS = 2.0  # assumed input rate / processed rate: a saturated source could always deliver more
_KEEPS_PLAN = (Reason.BEST, Reason.WITHIN_TARGET, Reason.AT_LIMIT, Reason.REFUTED, Reason.TOO_LITTLE_GAIN)

NextWindow = Callable[[], tuple[Window, Window | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPolicy:
    """A policy that chooses the replicas of trials, within at most `max_windows` windows."""

    policy: Policy
    settings: Settings
    max_windows: int = 60


class ReplicaSearch:
    """A policy that acts on a trial's engine, in the common control loop.

    `next_window` waits for a window and returns it with the previous one, or None if a source has ended.
    """

    def __init__(self, engine: RunnableEngine, clock: Clock, next_window: NextWindow, max_windows: int) -> None:
        self._engine, self._clock, self._next_window = engine, clock, next_window
        self._windows_left = max_windows
        self._window: Window | None = None

    def run(self, chooser: ReplicaPolicy) -> int:
        """Return the windows that are left if a source ended before the search did, and 0 if the search is done."""
        engine = self._engine
        with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:  # only the resulting plan is kept
            started_s = self._clock.time()
            store.begin_run(
                RunStart(dataflow=engine.flow.name, kind="study", flow_file="-", pid=0, master="-", started_s=started_s)
            )
            loop = Loop(
                engine=engine,
                store=store,
                controller=Controller(chooser.policy, chooser.settings, engine, store),
                clock=self._clock,
                observe=self._observe,
            )
            loop.run(lambda: self._wait(loop))
        return self._windows_left

    def _wait(self, loop: Loop) -> Stopped | None:
        last = loop.decision
        if self._windows_left == 0 or (last is not None and last.kind == "hold" and last.reason_code in _KEEPS_PLAN):
            self._windows_left = 0
            return Stopped(reason="the search is done")
        self._windows_left -= 1
        windows = self._next_window()
        if windows is None:
            return Stopped(reason="a source has ended")
        self._window = _with_excess_input(self._engine.flow, *windows)
        return None

    def _observe(self) -> Window:
        assert self._window is not None
        return self._window


def _with_excess_input(flow: Dataflow, window: Window, before: Window | None) -> Window:
    """Return the window with a higher input rate than was processed; a backlog has no arrivals of its own."""
    processed_per_s = sustained(flow, window, before)
    if processed_per_s is None:
        return window
    sources = {operator.name for operator in flow.operators if operator.kind is Kind.SOURCE}

    def with_excess(operator: OperatorWindow) -> OperatorWindow:
        if operator.operator not in sources or operator.processed_rows_per_s is None:
            return operator
        return msgspec.structs.replace(operator, input_rows_per_s=_EXCESS * operator.processed_rows_per_s)

    return msgspec.structs.replace(
        window,
        external_rows_per_s=_EXCESS * processed_per_s,
        operators=tuple(with_excess(operator) for operator in window.operators),
    )
