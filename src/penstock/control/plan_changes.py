"""Apply a plan to an engine and record the result; build the records of errors and of external changes."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Applied, Engine
from penstock.plan import Plan, diff
from penstock.store import ErrorRecord, PlanChange, Store


class PlanChangeResult(NamedTuple):
    ok: bool
    text: str
    applied: Applied | None  # None if the change failed, or if the plan was in force already


def change_plan(engine: Engine, store: Store, plan: Plan, *, requester: str, at_s: float) -> PlanChangeResult:
    """Apply a plan and record the result. The engine keeps its old plan if the new one cannot be applied."""
    old = engine.plan
    if diff(old, plan).empty:
        return PlanChangeResult(True, "the run has this plan already", None)
    try:
        applied = engine.apply(plan)
    except Exception as error:
        reason = error_text(error)
        store.add_plan_change(
            PlanChange(
                at_s=at_s, asked=requester, outcome="rolled back", reason=reason, old=old, new=plan, pause_s=None
            )
        )
        if not isinstance(error, PenstockError):
            store.add_error(error_record(error, where=requester, at_s=at_s))
        return PlanChangeResult(False, f"rolled back: {reason}", None)
    store.add_plan_change(
        PlanChange(
            at_s=at_s,
            asked=requester,
            outcome="ok",
            reason=applied.changed,
            old=old,
            new=applied.plan,
            pause_s=applied.pause_s,
        )
    )
    return PlanChangeResult(True, f"{applied.changed} (paused {applied.pause_s:.2f} s)", applied)


def external_change(old: Plan, new: Plan, *, at_s: float) -> PlanChange:
    """Return the record of a plan change that Penstock did not make, such as a lost executor."""
    changed = str(diff(old, new))
    return PlanChange(at_s=at_s, asked="not by Penstock", outcome="ok", reason=changed, old=old, new=new, pause_s=0.0)


def error_record(error: BaseException, *, where: str, at_s: float) -> ErrorRecord:
    """Return the store's record of an error. Only unexpected errors get a traceback."""
    trace = None if isinstance(error, PenstockError) else "".join(traceback.format_exception(error))
    return ErrorRecord(at_s=at_s, where=where, message=error_text(error), traceback=trace)


def error_text(error: BaseException) -> str:
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
