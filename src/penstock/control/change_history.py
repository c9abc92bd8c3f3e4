"""The applied plan changes of a run: the change to evaluate next, earlier changes, and plans that have failed.

The history is read from the store, so that a resumed run continues with it. Verdicts are written to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.control.policy import PastChange, Verdict
from penstock.measure.load import Load
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.store import DecisionRecord, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A change that was applied and has not been evaluated yet."""

    number: int  # row number in the store
    row: DecisionRecord
    load: Load
    at_s: float


class ChangeHistory:
    """The applied changes of a run, in this start and in earlier ones."""

    def __init__(self, store: Store) -> None:
        rows = store.applied_changes()
        self._store = store
        self._refuted = _refuted_plans(rows)
        self.past = _past_changes(rows)
        self.pending = _pending_change(rows)

    def add(self, change: PastChange) -> None:
        self.past = (*self.past, change)

    def close_pending(self, verdict: Verdict, observed: PlanOutcome | None, at_s: float) -> None:
        """Record the verdict on the pending change, if there is one."""
        if self.pending is not None:
            row = msgspec.structs.replace(self.pending.row, verdict=verdict, observed=observed, observed_at_s=at_s)
            self._store.update_decision(self.pending.number, row)
            self.pending = None

    def refute(self, plan: Plan, load: Load) -> None:
        """Remember that a plan has failed under a load."""
        self._refuted.append((plan, load))

    @property
    def refuted(self) -> tuple[Plan, ...]:
        return tuple(plan for plan, _ in self._refuted)

    def is_refuted(self, plan: Plan) -> bool:
        return any(plan == refuted for refuted, _ in self._refuted)

    def forget_refuted_unless(self, same_load: Callable[[Load], bool]) -> None:
        """Forget the plans that failed under a load for which `same_load` is false."""
        self._refuted = [(plan, load) for plan, load in self._refuted if same_load(load)]


def finished_s(row: DecisionRecord) -> float:
    """Return when the change of a decision was complete."""
    return row.at_s + (row.took_s or row.pause_s or 0.0)


def _past_changes(rows: Sequence[tuple[int, DecisionRecord]]) -> tuple[PastChange, ...]:
    return tuple(
        PastChange(at_s=finished_s(row), old=row.old, new=row.new, pause_s=row.pause_s, took_s=row.took_s)
        for _, row in rows
        if row.applied == "ok" and row.new is not None
    )


def _refuted_plans(rows: Sequence[tuple[int, DecisionRecord]]) -> list[tuple[Plan, Load]]:
    """Return the plans that failed before the run was stopped, with the load at that time."""
    return [
        (row.new, row.load)
        for _, row in rows
        if row.new is not None and row.load is not None and (row.verdict == "rolled back" or row.applied == "failed")
    ]


def _pending_change(rows: Sequence[tuple[int, DecisionRecord]]) -> PendingChange | None:
    """Return the last change if the run was stopped before it was evaluated."""
    applied = [(number, row) for number, row in rows if row.applied == "ok"]
    if not applied:
        return None
    number, row = applied[-1]
    if row.verdict is not None or row.load is None or row.expected is None:
        return None
    return PendingChange(number=number, row=row, load=row.load, at_s=finished_s(row))
