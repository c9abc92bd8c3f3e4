"""What a run or a study cost: the slots and executors that its plans held, over the time that they held them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from penstock.plan.plan import Plan
from penstock.report.history import Totals
from penstock.store import PlanChange, RunRecord, Trial


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and from when to when it ran."""

    start_s: float
    end_s: float
    plan: Plan
    executors: int | None = None  # that held its slots, where that is known


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float  # that the run was up
    slot_seconds: float  # held, whether they worked or not
    executor_seconds: float | None  # None where it is not known how many slots an executor has
    peak_executors: int | None
    busy_slot_seconds: float | None  # in which tasks ran
    peak_slots: int
    peak_slot_seconds: float  # had the most slots been held all the time
    price_per_slot_hour: float | None = None
    money: float | None = None
    money_per_million_rows: float | None = None


def in_force(runs: Sequence[RunRecord], changes: Sequence[PlanChange], *, until_s: float) -> tuple[InForce, ...]:
    """Plans in the order in which they ran. A run that was killed ends at `until_s`, or where the next begins: nobody
    knows better."""
    found = []
    for number, run in enumerate(runs):
        if run.plan is None:
            continue
        last = runs[number + 1].started_s if number + 1 < len(runs) else until_s
        end_s = min(last, until_s) if run.stopped_s is None else run.stopped_s
        plan, since_s = run.plan, run.started_s
        for change in changes:
            if change.outcome == "ok" and run.started_s <= change.at_s <= end_s:
                found.append(_held(run, plan, since_s, change.at_s))
                plan, since_s = change.new, change.at_s
        found.append(_held(run, plan, since_s, max(end_s, since_s)))
    return tuple(found)


def _held(run: RunRecord, plan: Plan, start_s: float, end_s: float) -> InForce:
    executors = None if run.slots_each is None else math.ceil(plan.slots / run.slots_each)
    return InForce(start_s=start_s, end_s=end_s, plan=plan, executors=executors)


def tried(trials: Iterable[Trial]) -> tuple[InForce, ...]:
    """The plans that the trials of a study ran under."""
    return tuple(
        InForce(start_s=one.began_s, end_s=one.ended_s, plan=one.plan, executors=one.executors) for one in trials
    )


def cost(held: Sequence[InForce], totals: Totals, *, price_per_slot_hour: float | None = None) -> Cost | None:
    """None of what never was up."""
    if not held:
        return None
    seconds = sum(one.end_s - one.start_s for one in held)
    slot_seconds = sum((one.end_s - one.start_s) * one.plan.slots for one in held)
    peak = max(one.plan.slots for one in held)
    executors = [(one.end_s - one.start_s, one.executors) for one in held if one.executors is not None]
    known = len(executors) == len(held)
    money = None if price_per_slot_hour is None else slot_seconds / 3600 * price_per_slot_hour
    return Cost(
        seconds=seconds,
        slot_seconds=slot_seconds,
        executor_seconds=sum(span * count for span, count in executors) if known else None,
        peak_executors=max(count for _, count in executors) if known else None,
        busy_slot_seconds=totals.busy_s,
        peak_slots=peak,
        peak_slot_seconds=peak * seconds,
        price_per_slot_hour=price_per_slot_hour,
        money=money,
        money_per_million_rows=money / totals.rows * 1e6 if money is not None and totals.rows else None,
    )
