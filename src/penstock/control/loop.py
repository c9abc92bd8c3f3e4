"""The control loop: observe the engine, record the window, let the controller decide and apply.

`Loop.turn` is one pass; `Loop.run` repeats it. The callers differ only in how they wait for the end of a window and in
when they stop: `control.run` (a run), `control.watch` (queries of another program), `control.simulation` (a policy in
simulated time) and `study.mst.replica_search` (a policy during a trial).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.control.plan_changes import error_record, external_change
from penstock.engines.ports import Engine
from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.store import DecisionRecord, Store

if TYPE_CHECKING:  # a run without a policy starts without importing the models
    from penstock.control.controller import Controller


class Clock(Protocol):
    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


OnWindow = Callable[[Window, Plan], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why a loop ended."""

    reason: str
    failed: bool = False


@dataclass(slots=True, kw_only=True)
class Loop:
    """One engine, its store, and the controller that decides for it (None: windows are only recorded)."""

    engine: Engine
    store: Store
    controller: Controller | None = None
    clock: Clock = time
    on_window: OnWindow | None = None  # called with each window and the plan in force, before the decision
    on_message: Callable[[str], None] | None = None  # called with one sentence when a failed query is restarted
    observe: Callable[[], Window] | None = None  # replaces engine.observe
    survives_failed_observation: bool = False  # record the error and decide without a window, instead of raising
    warm_until_s: float = 0.0  # windows that begin earlier belong to the warm-up
    decision: DecisionRecord | None = None  # the last one
    _known_plan: Plan | None = None

    def run(
        self,
        wait: Callable[[], Stopped | None],
        on_error: Callable[[Exception], Stopped | None] | None = None,
    ) -> Stopped:
        """Take turns until `wait` or `on_error` returns a reason to stop.

        `wait` returns at the end of the next window. Errors of a wait or a turn are raised, or passed to `on_error`.
        """
        stopped: Stopped | None = None
        while stopped is None:
            try:
                if (stopped := wait()) is None:
                    self.turn()
            except Exception as error:
                if on_error is None:
                    raise
                stopped = on_error(error)
        return stopped

    def turn(self, *, decide: bool = True) -> None:
        """Observe, record, decide and apply once."""
        window: Window | None = None
        number: int | None = None
        try:
            window = (self.observe or self.engine.observe)()
            self.record_external_change()
            if window.start_s < self.warm_until_s:
                window = msgspec.structs.replace(window, warm_up=True)
            number = self.store.add_window(window)
        except Exception as error:
            if not self.survives_failed_observation:
                raise
            window = None  # a window that could not be recorded is not used for a decision
            self.store.add_error(error_record(error, where="observe", at_s=self.clock.time()))
        if window is not None and self.on_window is not None:
            self.on_window(window, self.engine.plan)
        if self.controller is not None and decide:
            self.decision = self.controller.decide(window, number=number, at_s=self.clock.time())
            if self.decision is not None and self.decision.applied in ("ok", "failed"):  # it is recorded
                self.accept_plan()

    def accept_plan(self) -> None:
        """Note that the plan in force is recorded already."""
        self._known_plan = self.engine.plan

    def record_external_change(self) -> None:
        """Record a plan change that Penstock did not make, such as lost executors."""
        before, now = self._known_plan, self.engine.plan
        if before is not None and now != before:
            self.store.add_plan_change(external_change(before, now, at_s=self.clock.time()))
        self._known_plan = now
