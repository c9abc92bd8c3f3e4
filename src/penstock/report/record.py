"""A run's whole record as one value, of bounded size: what `penstock report` draws, and prints as JSON."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.plan.plan import Plan
from penstock.report.costs import Cost, InForce, cost, in_force, tried
from penstock.report.counted import Counted
from penstock.report.decisions import alike
from penstock.report.history import Moment, Point, Totals, moment, points, totals, windows_per_point
from penstock.report.mst_curve import MstCurve, curves_in
from penstock.report.operators import OperatorSummary, Recent
from penstock.report.status import status
from penstock.store import DecisionRecord, ErrorRecord, OperatorDeclaration, PlanChange, RunRecord, StoreReader, Trial

Row = TypeVar("Row", DecisionRecord, ErrorRecord)
MOST_CHANGES = 200  # the latest; so many that nobody reads them, so few that the page stays small
MOST_HOLDS = 100
MOST_ERRORS = 50
MOST_TRIALS = 200


class DecisionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, or several alike in a row; `decided` is the last of them."""

    number: int
    times: int
    since_s: float
    decided: DecisionRecord


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An error, or the same one several times in a row; `error` is the last of them."""

    number: int
    times: int
    since_s: float
    error: ErrorRecord


class NumberedChange(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    change: PlanChange
    decision: int | None  # the number of the decision that asked for it


class Report(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    made_s: float  # when this was read; a run that goes on has more by now
    state: str  # running, stopped, killed, or not started
    run: RunRecord | None  # the last start
    starts: tuple[float, ...]
    plan: Plan | None  # in force
    totals: Totals
    windows_per_point: int
    points: tuple[Point, ...]
    operators: tuple[OperatorSummary, ...]
    operators_since_s: float | None  # what `operators` is a mean over: since the plan last changed
    operators_until_s: float | None
    plans: tuple[InForce, ...]
    cost: Cost | None
    plan_changes: tuple[NumberedChange, ...]  # the latest
    plan_changes_in_all: int
    policies: tuple[str, ...]
    change_decisions: tuple[DecisionGroup, ...]  # the latest
    change_decisions_in_all: int
    holds: tuple[DecisionGroup, ...]  # the latest
    held: dict[str, int]  # how often by reason
    errors: tuple[ErrorGroup, ...]  # the latest
    errors_in_all: int
    mst: tuple[MstCurve, ...]
    trials: tuple[Trial, ...]  # the latest of a study, those without a result too
    trials_in_all: int


def report(
    run_dir: Path,
    reader: StoreReader,
    *,
    now_s: float,
    price_per_slot_hour: float | None = None,
    mst: tuple[MstCurve, ...] = (),
) -> Report:
    """`mst` are curves of other stores; those of trials in this one are found."""
    shown = status(run_dir, reader)
    runs, changes = reader.runs(), reader.plan_changes()
    declared = next((run.operators for run in reversed(runs) if run.operators), ())
    moments, recent = _observed(reader, declared)
    sums = totals(moments)
    last_s = max([run.started_s for run in runs] + [one.end_s for one in moments[-1:]], default=now_s)
    held = in_force(runs, changes, until_s=now_s if shown.state == "running" else last_s)
    decided = _Decisions(reader)
    numbered = [
        NumberedChange(number=number, change=one, decision=decided.numbers.get((one.at_s, one.asked)))
        for number, one in enumerate(changes, start=1)
    ]
    errors, errors_in_all = _errors(reader)
    trials = reader.trials()
    return Report(
        directory=str(run_dir),
        made_s=now_s,
        state=shown.state,
        run=shown.run,
        starts=tuple(run.started_s for run in runs),
        plan=shown.plan,
        totals=sums,
        windows_per_point=windows_per_point(len(moments)),
        points=points(moments, [run.started_s for run in runs]),
        operators=recent.summaries(declared, shown.plan.cuts if shown.plan else frozenset()),
        operators_since_s=recent.since_s,
        operators_until_s=recent.until_s,
        plans=held,
        cost=cost((*held, *tried(trials)), sums, price_per_slot_hour=price_per_slot_hour),
        plan_changes=tuple(numbered[-MOST_CHANGES:]),
        plan_changes_in_all=len(numbered),
        policies=tuple(decided.policies),
        change_decisions=tuple(decided.changes),
        change_decisions_in_all=decided.changes_in_all,
        holds=tuple(decided.holds),
        held=dict(decided.held.most_common()),
        errors=errors,
        errors_in_all=errors_in_all,
        mst=(*curves_in(reader), *mst),
        trials=tuple(trials[-MOST_TRIALS:]),
        trials_in_all=len(trials),
    )


def _observed(reader: StoreReader, declared: tuple[OperatorDeclaration, ...]) -> tuple[list[Moment], Recent]:
    named = {one.operator for one in declared if one.kind == "source"}
    moments, recent, rows = [], Recent(), Counted()
    for _, observed in reader.iter_windows():
        window = rows.counted(observed)
        # Where nothing was declared, what has no replicas of its own is a source.
        sources = named or {one.operator for one in window.operators if one.replicas is None}
        moments.append(moment(window, sources))
        recent.add(window)
    return moments, recent


class _Decisions:
    """The changes, and how often and why nothing was changed."""

    def __init__(self, reader: StoreReader) -> None:
        self.changes: deque[DecisionGroup] = deque(maxlen=MOST_CHANGES)
        self.changes_in_all = 0
        self.holds: deque[DecisionGroup] = deque(maxlen=MOST_HOLDS)
        self.held: Counter[str] = Counter()
        self.policies: dict[str, None] = {}
        self.numbers: dict[tuple[float, str], int] = {}  # by what the plan change says of who asked for it, and when
        for number, times, first, last in _in_a_row(reader.iter_decisions(), alike):
            self._add(DecisionGroup(number=number, times=times, since_s=first.at_s, decided=last))

    def _add(self, group: DecisionGroup) -> None:
        last = group.decided
        self.policies[last.policy] = None
        if last.kind == "hold":
            self.held[last.reason] += group.times
            self.holds.append(group)
        else:
            self.changes_in_all += 1
            self.changes.append(group)
            self.numbers[last.at_s, f"{last.policy}: {last.reason}"] = group.number


def _errors(reader: StoreReader) -> tuple[tuple[ErrorGroup, ...], int]:
    latest: deque[ErrorGroup] = deque(maxlen=MOST_ERRORS)
    in_all = 0
    for number, times, first, last in _in_a_row(reader.iter_errors(), lambda error: (error.where, error.message)):
        in_all += times
        latest.append(ErrorGroup(number=number, times=times, since_s=first.at_s, error=last))
    return tuple(latest), in_all


def _in_a_row(rows: Iterator[tuple[int, Row]], key: Callable[[Row], object]) -> Iterator[tuple[int, int, Row, Row]]:
    """(number of the last, how many, the first, the last) of rows alike that follow upon each other."""
    group: tuple[int, int, Row, Row] | None = None
    for number, row in rows:
        if group is not None and key(row) == key(group[3]):
            group = (number, group[1] + 1, group[2], row)
        else:
            if group is not None:
                yield group
            group = (number, 1, row, row)
    if group is not None:
        yield group
