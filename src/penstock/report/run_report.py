"""The record of a run as one value of bounded size: `penstock report` renders it as a page or prints it as JSON."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.plan.plan import Plan
from penstock.report.costs import Cost, PlanPeriod, cost, plan_periods, slots_at, trial_periods
from penstock.report.decisions import group_key
from penstock.report.event_time import event_time_remarks
from penstock.report.history import (
    Point,
    RowCounter,
    Totals,
    WindowSummary,
    points,
    summarise,
    totals,
    utilisations,
    windows_per_point,
)
from penstock.report.mst_curve import MstCurve, curves_in
from penstock.report.operators import OperatorMeans, OperatorSummary
from penstock.report.predicted import PredictedValue
from penstock.report.profile_report import ProfileReport, platform_results, profile_report
from penstock.report.status import run_status
from penstock.report.watched import WatchedSummary, estimated_latency, watched_summary
from penstock.store import DecisionRecord, ErrorRecord, OperatorDeclaration, PlanChange, RunStart, StoreReader, Trial

Row = TypeVar("Row", DecisionRecord, ErrorRecord)
# The latest rows of each kind; the limits keep the page small.
MAX_CHANGES = 200
MAX_HOLDS = 100
MAX_ERRORS = 50
MAX_TRIALS = 200


class DecisionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, or several equal ones in a row; `decision` is the last of them."""

    number: int
    times: int
    since_s: float
    decision: DecisionRecord


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An error, or several equal ones in a row; `error` is the last of them."""

    number: int
    times: int
    since_s: float
    error: ErrorRecord


class NumberedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A plan change; `decision` is the number of the decision that requested it."""

    number: int
    change: PlanChange
    decision: int | None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the report of a run or study shows."""

    directory: str
    made_s: float  # when the record was read
    state: str  # running, stopped, killed or not started
    run: RunStart | None  # the latest start
    starts: tuple[float, ...]  # start times
    plan: Plan | None  # the current plan
    totals: Totals
    windows_per_point: int
    points: tuple[Point, ...]
    operators: tuple[OperatorSummary, ...]
    operators_since_s: float | None  # `operators` contains means since the latest plan change
    operators_until_s: float | None
    event_time_remarks: tuple[str, ...]  # late rows and open windows
    plans: tuple[PlanPeriod, ...]
    cost: Cost | None
    plan_changes: tuple[NumberedChange, ...]  # the latest
    plan_changes_in_all: int
    policies: tuple[str, ...]
    change_decisions: tuple[DecisionGroup, ...]  # the latest
    change_decisions_in_all: int
    holds: tuple[DecisionGroup, ...]  # the latest
    held: dict[str, int]  # reason -> number of holds
    errors: tuple[ErrorGroup, ...]  # the latest
    errors_in_all: int
    watched: WatchedSummary | None  # only for a watched program
    mst: tuple[MstCurve, ...]
    trials: tuple[Trial, ...]  # the latest, including failed ones
    trials_in_all: int
    profile: ProfileReport | None = None  # only for a profile
    predicted: tuple[PredictedValue, ...] = ()  # beside what was observed; empty: no prediction for the plan


def run_report(
    run_dir: Path,
    reader: StoreReader,
    *,
    now_s: float,
    price_per_slot_hour: float | None = None,
    mst: tuple[MstCurve, ...] = (),
) -> RunReport:
    """Read the report of the run in `run_dir`; `mst` adds throughput curves of other stores."""
    status = run_status(run_dir, reader)
    starts, changes, trials = reader.runs(), reader.plan_changes(), reader.trials()
    declared = next((start.operators for start in reversed(starts) if start.operators), ())
    is_watched = status.run is not None and status.run.kind == "watch"
    windows, means = _read_windows(reader, declared, starts, estimates_latency=is_watched)
    last_s = max([start.started_s for start in starts] + [window.end_s for window in windows[-1:]], default=now_s)
    periods = plan_periods(starts, changes, until_s=now_s if status.state == "running" else last_s)
    busy_shares = utilisations(windows, [slots_at(periods, (w.start_s + w.end_s) / 2) for w in windows])
    sums = totals(windows, busy_shares)
    if price_per_slot_hour is None and status.run is not None:
        price_per_slot_hour = status.run.price_per_slot_hour
    decisions = _read_decisions(reader)
    numbered = [
        NumberedChange(number=number, change=change, decision=decisions.numbers.get((change.at_s, change.asked)))
        for number, change in enumerate(changes, start=1)
    ]
    errors, error_count = _read_errors(reader)
    return RunReport(
        directory=str(run_dir),
        made_s=now_s,
        state=status.state,
        run=status.run,
        starts=tuple(start.started_s for start in starts),
        plan=status.plan,
        totals=sums,
        windows_per_point=windows_per_point(len(windows)),
        points=points(windows, [start.started_s for start in starts], busy_shares),
        operators=means.summaries(declared, status.plan.cuts if status.plan else frozenset()),
        operators_since_s=means.since_s,
        operators_until_s=means.until_s,
        event_time_remarks=event_time_remarks(status.window),
        plans=periods,
        cost=cost((*periods, *trial_periods(trials)), sums, price_per_slot_hour=price_per_slot_hour),
        plan_changes=tuple(numbered[-MAX_CHANGES:]),
        plan_changes_in_all=len(numbered),
        policies=decisions.policies,
        change_decisions=decisions.changes,
        change_decisions_in_all=decisions.change_count,
        holds=decisions.holds,
        held=decisions.hold_counts,
        errors=errors,
        errors_in_all=error_count,
        watched=watched_summary(reader, windows) if is_watched else None,
        mst=(*curves_in(reader), *mst),
        trials=tuple(trials[-MAX_TRIALS:]),
        trials_in_all=len(trials),
        profile=_profile(run_dir, trials),
        predicted=status.predicted,
    )


def _profile(run_dir: Path, trials: Sequence[Trial]) -> ProfileReport | None:
    report = profile_report(run_dir, trials)
    return None if report is None else msgspec.structs.replace(report, platforms=platform_results(run_dir))


def _read_windows(
    reader: StoreReader,
    declared: tuple[OperatorDeclaration, ...],
    starts: Sequence[RunStart],
    *,
    estimates_latency: bool,
) -> tuple[list[WindowSummary], OperatorMeans]:
    declared_sources = {declaration.operator for declaration in declared if declaration.kind == "source"}
    summaries, means, counter = [], OperatorMeans(), RowCounter()
    started_s = [start.started_s for start in starts]
    for _, observed in reader.iter_windows():
        window = counter.corrected(observed)
        if estimates_latency and window.latency is None:
            window = msgspec.structs.replace(window, latency=estimated_latency(window))
        start = starts[max(0, bisect_right(started_s, window.end_s) - 1)] if starts else None
        # Without declarations, operators without replicas are the sources.
        sources = declared_sources or {o.operator for o in window.operators if o.replicas is None}
        summaries.append(summarise(window, sources, None if start is None else start.latency_target))
        means.add(window)
    return summaries, means


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    changes: tuple[DecisionGroup, ...]  # the latest
    change_count: int
    holds: tuple[DecisionGroup, ...]  # the latest
    hold_counts: dict[str, int]  # by reason
    policies: tuple[str, ...]
    numbers: dict[tuple[float, str], int]  # (time, request) of a plan change -> number of its decision


def _read_decisions(reader: StoreReader) -> _Decisions:
    changes: deque[DecisionGroup] = deque(maxlen=MAX_CHANGES)
    holds: deque[DecisionGroup] = deque(maxlen=MAX_HOLDS)
    hold_counts: Counter[str] = Counter()
    policies: dict[str, None] = {}
    numbers: dict[tuple[float, str], int] = {}
    change_count = 0
    for number, times, first, last in _groups(reader.iter_decisions(), group_key):
        group = DecisionGroup(number=number, times=times, since_s=first.at_s, decision=last)
        policies[last.policy] = None
        if last.kind == "hold":
            hold_counts[last.reason_code] += times
            holds.append(group)
        else:
            change_count += 1
            changes.append(group)
            numbers[last.at_s, f"{last.policy}: {last.reason_code}"] = number
    return _Decisions(
        changes=tuple(changes),
        change_count=change_count,
        holds=tuple(holds),
        hold_counts=dict(hold_counts.most_common()),
        policies=tuple(policies),
        numbers=numbers,
    )


def _read_errors(reader: StoreReader) -> tuple[tuple[ErrorGroup, ...], int]:
    latest: deque[ErrorGroup] = deque(maxlen=MAX_ERRORS)
    total = 0
    for number, times, first, last in _groups(reader.iter_errors(), lambda error: (error.where, error.message)):
        total += times
        latest.append(ErrorGroup(number=number, times=times, since_s=first.at_s, error=last))
    return tuple(latest), total


def _groups(rows: Iterator[tuple[int, Row]], key: Callable[[Row], object]) -> Iterator[tuple[int, int, Row, Row]]:
    """Yield (number of the last row, number of rows, first row, last row) for each group of consecutive equal rows."""
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
