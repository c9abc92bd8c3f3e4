"""What a request does to a running run. Whatever goes wrong becomes an answer and a row of the store."""

from __future__ import annotations

import traceback

from penstock.control.requests import Answer, Apply, Rate, Request, Rescale, Stop
from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import Engine, RunnableEngine
from penstock.plan import Plan, diff, rescaled, validated
from penstock.store import ErrorRecord, PlanChange, Store


def carry_out(request: Request, engine: RunnableEngine, store: Store, *, at_s: float) -> Answer:
    try:
        match request:
            case Apply(plan=plan):
                return change_plan(engine, store, validated(engine.flow, plan), asked=str(request), at_s=at_s)
            case Rescale(replicas=replicas):
                plan = rescaled(engine.flow, engine.plan, replicas)
                return change_plan(engine, store, plan, asked=str(request), at_s=at_s)
            case Rate(source=source, rows_per_s=rows_per_s):
                engine.set_rate(source, rows_per_s)
                return Answer(ok=True, text=f"{source} now appends {rows_per_s:g} rows/s")
            case Stop():
                return Answer(ok=True, text="stopped")
    except Exception as error:
        store.add_error(described(error, where=str(request), at_s=at_s))
        return Answer(ok=False, text=_text(error))


def change_plan(engine: Engine, store: Store, plan: Plan, *, asked: str, at_s: float) -> Answer:
    """Applies a plan and records how it went; an engine that cannot keeps its old plan."""
    old = engine.plan
    if diff(old, plan).empty:
        return Answer(ok=True, text="the run has this plan already")
    try:
        applied = engine.apply(plan)
    except Exception as error:
        reason = _text(error)
        store.add_plan_change(
            PlanChange(at_s=at_s, asked=asked, outcome="rolled back", reason=reason, old=old, new=plan, pause_s=None)
        )
        if not isinstance(error, PenstockError):
            store.add_error(described(error, where=asked, at_s=at_s))
        return Answer(ok=False, text=f"rolled back: {reason}")
    store.add_plan_change(
        PlanChange(
            at_s=at_s,
            asked=asked,
            outcome="ok",
            reason=applied.changed,
            old=old,
            new=applied.plan,
            pause_s=applied.pause_s,
        )
    )
    return Answer(ok=True, text=f"{applied.changed} (paused {applied.pause_s:.2f} s)", applied=applied)


def unasked(old: Plan, new: Plan, *, at_s: float) -> PlanChange:
    """Executors may come and go by themselves, and what is there is what is shown and paid for."""
    changed = str(diff(old, new))
    return PlanChange(at_s=at_s, asked="not by Penstock", outcome="ok", reason=changed, old=old, new=new, pause_s=0.0)


def described(error: BaseException, *, where: str, at_s: float) -> ErrorRecord:
    """With a traceback only where nobody raised it on purpose."""
    trace = None if isinstance(error, PenstockError) else "".join(traceback.format_exception(error))
    return ErrorRecord(at_s=at_s, where=where, message=_text(error), traceback=trace)


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
