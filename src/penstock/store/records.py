"""What the store keeps beside windows: runs, plan changes, errors. One value a row, names with units."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.plan.plan import Plan


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a dataflow in its directory; a resumed run has several."""

    dataflow: str
    flow_file: str  # what `penstock run` was given
    pid: int
    master: str
    started_s: float  # wall clock, seconds since the epoch
    plan: Plan | None = None  # in force when it started; None until the engine is up
    stopped_s: float | None = None  # None: still running, or killed
    stopped_why: str | None = None


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    asked: str  # in words, and by whom: "rescale count=4"
    outcome: Literal["ok", "rolled back"]
    reason: str  # what changed, or why it could not
    old: Plan
    new: Plan  # the plan asked for, also where it was rolled back
    pause_s: float | None  # None where it was rolled back


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    where: str  # start, observe, a request, apply, run, stop
    message: str
    traceback: str | None = None  # only of errors that nobody raised on purpose
