"""Decisions for a terminal: one entry per change, and one per sequence of holds with the same reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.table import Table

from penstock.plan.counts import slots_text
from penstock.plan.plan import diff
from penstock.planning.plan_outcome import PlanOutcome
from penstock.report.formatting import UNKNOWN, count, plural, seconds
from penstock.store import DecisionRecord

HEADINGS = ("at", "decision", "reason code", "reason", "before", "expected", "observed", "outcome")


def decision_table(rows: Sequence[DecisionRecord]) -> Table:
    """Return a table with one row per group; it needs a wide terminal."""
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading in ("at", "reason code"))
    for _, group in groupby(rows, key=group_key):
        decisions = list(group)
        table.add_row(*decision_cells(decisions[-1], times=len(decisions)))
    return table


def decision_list(rows: Sequence[DecisionRecord]) -> Table:
    """Return the same content for a narrow terminal, with several lines per group."""
    grid = Table.grid(padding=(0, 2))
    for _, group in groupby(rows, key=group_key):
        decisions = list(group)
        last = decisions[-1]
        at, action, reason_code, reason, before, expected, observed, outcome = decision_cells(
            last, times=len(decisions)
        )
        grid.add_row(at, f"{reason_code}: {action}")
        grid.add_row("", reason)
        steps = [before] * (before != UNKNOWN)
        steps += [f"expected {expected}"] * (expected != UNKNOWN)
        steps += [f"observed {observed}"] * (observed != UNKNOWN)
        if last.kind == "change":
            grid.add_row("", f"{' -> '.join(steps)}; {outcome}" if steps else outcome)
    return grid


def decision_cells(row: DecisionRecord, *, times: int = 1) -> tuple[str, ...]:
    """Return the texts of a decision in the order of HEADINGS; `times` is the size of its group."""
    action = "hold" if row.new is None else str(diff(row.old, row.new))
    reason = row.reason if row.needs_slots is None else f"{row.reason} [needs {slots_text(row.needs_slots)}]"
    expected = row.expected
    in_rows = expected is not None and expected.latency_s is None and expected.rows_per_s is not None
    return (
        time.strftime("%H:%M:%S", time.localtime(row.at_s)),
        action if times == 1 else f"{action} ({times} times)",
        row.reason_code,
        reason,
        outcome_text(row.before, in_rows=in_rows),
        outcome_text(row.expected, in_rows=in_rows),
        outcome_text(row.observed, in_rows=in_rows),
        _result(row),
    )


def outcome_text(outcome: PlanOutcome | None, *, in_rows: bool = False) -> str:
    """Return the latency and the slots. If `in_rows` is set, the throughput replaces the latency.

    >>> outcome_text(PlanOutcome(slots=4, latency_s=0.25, rows_per_s=1000.0)), outcome_text(None)
    ('250 ms, 4 slots', '-')
    >>> outcome_text(PlanOutcome(slots=4, latency_s=0.25, rows_per_s=1000.0), in_rows=True)
    '1,000 rows/s, 4 slots'
    """
    if outcome is None:
        return UNKNOWN
    if in_rows:
        return f"{count(outcome.rows_per_s)} rows/s, {plural(outcome.slots, 'slot')}"
    quantile = "" if outcome.quantile is None else f"p{100 * outcome.quantile:g} "
    return f"{quantile}{seconds(outcome.latency_s)}, {plural(outcome.slots, 'slot')}"


def interval_summary(rows: Sequence[DecisionRecord]) -> str | None:
    """Return how often the observed latency was within the expected interval; None if no such change was evaluated.

    A change that ended with another load, or that was replaced by another change, says nothing about its prediction.
    """
    judged = [
        row.expected.low_s <= row.observed.latency_s <= row.expected.high_s
        for row in rows
        if row.verdict not in (None, "load changed", "superseded")
        if row.expected is not None and row.expected.low_s is not None and row.expected.high_s is not None
        if row.observed is not None and row.observed.latency_s is not None
    ]
    if not judged:
        return None
    return (
        f"The observed latency was within the expected interval after {sum(judged)} of {plural(len(judged), 'change')}."
    )


def group_key(row: DecisionRecord) -> tuple[str, str, float]:
    """Return a key that consecutive decisions of one group share. An applied change is a group of its own."""
    return (row.kind, row.reason_code, row.at_s if row.kind == "change" and row.applied != "recommended" else 0.0)


def _result(row: DecisionRecord) -> str:
    if row.applied in (None, "recommended"):
        return row.applied or ""
    if row.applied == "failed":
        return f"failed: {row.failure}"
    if row.applied == "begun":
        return "begun, but the run ended"
    pause = "" if row.pause_s is None else f", paused {seconds(row.pause_s)}"
    moved = f", {row.moved_rows:,.0f} rows of state moved" if row.moved_rows else ""
    return f"{row.verdict or 'applied'}{pause}{moved}"
