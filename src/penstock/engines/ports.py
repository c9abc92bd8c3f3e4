"""The contract of an engine: what the loop and studies may ask of whatever runs a plan."""

from __future__ import annotations

from typing import Protocol

import msgspec

from penstock.dataflow import Dataflow
from penstock.measure.window import Window
from penstock.plan.plan import Plan


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """How an apply went: the plan in force afterwards, and what it cost."""

    plan: Plan
    generation: int
    changed: str  # the difference in words
    pause_s: float  # from the first query stopped to the last one running again
    stopped: tuple[str, ...]  # the pipelines that were stopped; all others kept running
    took_s: float = 0.0  # from beginning to end, executors that were waited for included


class Engine(Protocol):
    """Runs one dataflow under one plan at a time."""

    @property
    def flow(self) -> Dataflow: ...

    @property
    def plan(self) -> Plan: ...

    def start(self) -> None:
        """Starts the dataflow, or resumes it where it was."""

    def observe(self) -> Window:
        """What happened since the last call."""

    def apply(self, plan: Plan) -> Applied:
        """Changes the plan while running; raises PenstockError and keeps the old plan if it cannot."""

    def set_rate(self, source: str, rows_per_s: float) -> None:
        """Changes the rate of a paced source."""

    def mend(self) -> tuple[str, ...]:
        """Starts again what ended by itself and may do better next time; says what that was."""

    def failure(self) -> str | None:
        """Why the run cannot go on, if so."""

    def idle(self) -> bool:
        """Whether every row appended so far has reached its sink."""

    def stop(self) -> None:
        """Stops cleanly; the run can be resumed."""
