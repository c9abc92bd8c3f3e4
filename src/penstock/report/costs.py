"""The cost of a run or a study: slots and executors of its plans, multiplied by the time for which they were held."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from penstock.plan.plan import Plan
from penstock.report.history import Totals
from penstock.store import PlanChange, RunStart, Trial


class PlanPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and the time during which it was used."""

    start_s: float
    end_s: float
    plan: Plan
    executors: int | None = None  # None if the slots per executor are unknown

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a run. Slots of executors are paid for while they are held, whether the plan uses them or not.

    The slots of a local master are held all the time. There the slots that the plan uses show what a policy saves.
    """

    seconds: float  # time during which a plan was used
    slot_seconds: float  # slots held x time
    used_slot_seconds: float  # slots that the plan can use at once x time: the replicas of the widest stages
    executor_seconds: float | None  # None if the slots per executor are unknown
    peak_executors: int | None
    busy_slot_seconds: float | None  # time during which tasks ran
    peak_slots: int
    peak_slot_seconds: float  # the cost of holding the largest number of slots all the time
    price_per_slot_hour: float | None = None
    money: float | None = None
    money_per_million_rows: float | None = None


def plan_periods(
    starts: Sequence[RunStart], changes: Sequence[PlanChange], *, until_s: float
) -> tuple[PlanPeriod, ...]:
    """Return the plans in the order in which they were used.

    The end of a killed run is unknown; the next start or `until_s` is used instead.
    """
    periods = []
    for number, start in enumerate(starts):
        if start.plan is None:
            continue
        next_start_s = starts[number + 1].started_s if number + 1 < len(starts) else until_s
        end_s = min(next_start_s, until_s) if start.stopped_s is None else start.stopped_s
        plan, since_s = start.plan, start.started_s
        for change in changes:
            if change.outcome == "ok" and start.started_s <= change.at_s <= end_s:
                periods.append(_period(start, plan, since_s, change.at_s))
                plan, since_s = change.new, change.at_s
        periods.append(_period(start, plan, since_s, max(end_s, since_s)))
    return tuple(periods)


def slots_at(periods: Sequence[PlanPeriod], at_s: float) -> int | None:
    """Return the slots of the plan that was used at a time; None if there was none."""
    position = bisect_right(periods, at_s, key=lambda period: period.start_s) - 1
    return periods[position].plan.slots if position >= 0 else None


def trial_periods(trials: Iterable[Trial]) -> tuple[PlanPeriod, ...]:
    """Return the plans of the trials of a study."""
    return tuple(
        PlanPeriod(start_s=trial.began_s, end_s=trial.ended_s, plan=trial.plan, executors=trial.executors)
        for trial in trials
    )


def cost(periods: Sequence[PlanPeriod], totals: Totals, *, price_per_slot_hour: float | None = None) -> Cost | None:
    """Return the cost of these periods, or None if there are none."""
    if not periods:
        return None
    total_s = sum(period.length_s for period in periods)
    slot_seconds = sum(period.length_s * period.plan.slots for period in periods)
    peak_slots = max(period.plan.slots for period in periods)
    executors = [(period.length_s, period.executors) for period in periods if period.executors is not None]
    all_known = len(executors) == len(periods)
    money = None if price_per_slot_hour is None else slot_seconds / 3600 * price_per_slot_hour
    return Cost(
        seconds=total_s,
        slot_seconds=slot_seconds,
        used_slot_seconds=totals.used_slot_s,
        executor_seconds=sum(length_s * count for length_s, count in executors) if all_known else None,
        peak_executors=max(count for _, count in executors) if all_known else None,
        busy_slot_seconds=totals.busy_s,
        peak_slots=peak_slots,
        peak_slot_seconds=peak_slots * total_s,
        price_per_slot_hour=price_per_slot_hour,
        money=money,
        money_per_million_rows=money / totals.rows * 1e6 if money is not None and totals.rows else None,
    )


def _period(start: RunStart, plan: Plan, start_s: float, end_s: float) -> PlanPeriod:
    executors = None if start.slots_per_executor is None else math.ceil(plan.slots / start.slots_per_executor)
    return PlanPeriod(start_s=start_s, end_s=end_s, plan=plan, executors=executors)
