"""The contracts of an engine: `Engine` is what deciding needs, `RunnableEngine` adds what running needs."""

from __future__ import annotations

from typing import Protocol

import msgspec

from penstock.dataflow import Dataflow
from penstock.measure.window import Window
from penstock.plan.plan import Plan


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Engine.apply`: the plan that is in force now, and the cost of the change."""

    plan: Plan
    generation: int  # number of the plan in this run, counted from 1
    changed: str  # the plan difference in words
    pause_s: float  # time between the stop of the first query and the restart of the last one
    stopped: tuple[str, ...]  # the pipelines that were stopped; all other pipelines kept running
    took_s: float = 0.0  # duration of the whole change, including the time to wait for executors
    # State in the partitions that were written anew because the number of replicas has changed. None: not known.
    moved_rows: float | None = 0.0
    moved_bytes: float | None = 0.0


class Engine(Protocol):
    """A dataflow under one plan at a time, which a controller can observe and change."""

    @property
    def flow(self) -> Dataflow: ...

    @property
    def plan(self) -> Plan: ...

    def observe(self) -> Window:
        """Return the measurements since the previous call."""

    def apply(self, plan: Plan) -> Applied:
        """Change the plan while the dataflow runs.

        Raises PenstockError if the plan cannot be applied; the previous plan then stays in force.
        """


class RunnableEngine(Engine, Protocol):
    """An engine whose dataflow Penstock starts and stops itself."""

    @property
    def startup_s(self) -> dict[str, float]:
        """The seconds of each phase of the start, in order; empty before it."""

    def start(self) -> None:
        """Start the dataflow, or resume it from its checkpoints."""

    def stop(self) -> None:
        """Stop the dataflow so that it can be resumed."""

    def set_rate(self, source: str, rows_per_s: float) -> None:
        """Change the rate of a paced source."""

    def recover(self) -> tuple[str, ...]:
        """Restart queries that have failed and may be retried; return a description of each recovery."""

    def failure(self) -> str | None:
        """Return why the run cannot continue, or None while it can."""

    def idle(self) -> bool:
        """Return whether every row appended so far has reached its sink."""
