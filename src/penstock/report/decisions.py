"""Decisions as a table, or told where it is narrow: a row a change, a row for each run of holds of the same reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.table import Table

from penstock.plan.plan import diff
from penstock.planning.plan_outcome import PlanOutcome
from penstock.report.table import UNKNOWN, seconds
from penstock.store import DecisionRecord


def table(rows: Sequence[DecisionRecord]) -> Table:
    drawn = Table(box=box.HORIZONTALS, pad_edge=False)
    for heading in ("at", "decision", "reason", "why", "before", "expected", "observed", "outcome"):
        drawn.add_column(heading, no_wrap=heading in ("at", "reason"))
    for _, same in groupby(rows, key=alike):
        some = list(same)
        drawn.add_row(*cells(some[-1], times=len(some)))
    return drawn


def told(rows: Sequence[DecisionRecord]) -> Table:
    """The same, below each other."""
    drawn = Table.grid(padding=(0, 2))
    for _, same in groupby(rows, key=alike):
        some = list(same)
        at, what, reason, why, before, expected, observed, became = cells(some[-1], times=len(some))
        drawn.add_row(at, f"{reason}: {what}")
        drawn.add_row("", why)
        steps = [before] * (before != UNKNOWN)
        steps += [f"expected {expected}"] * (expected != UNKNOWN)
        steps += [f"observed {observed}"] * (observed != UNKNOWN)
        if some[-1].kind == "change":
            drawn.add_row("", f"{' -> '.join(steps)}; {became}" if steps else became)
    return drawn


def cells(row: DecisionRecord, *, times: int = 1) -> tuple[str, ...]:
    what = "hold" if row.new is None else str(diff(row.old, row.new))
    why = row.why if row.needs_slots is None else f"{row.why} [needs {row.needs_slots} slots]"
    return (
        time.strftime("%H:%M:%S", time.localtime(row.at_s)),
        what if times == 1 else f"{what} ({times} times)",
        row.reason,
        why,
        outcome(row.before),
        outcome(row.expected),
        outcome(row.observed),
        _became(row),
    )


def outcome(one: PlanOutcome | None) -> str:
    """
    >>> outcome(PlanOutcome(slots=4, latency_s=0.25, rows_per_s=1000.0)), outcome(None)
    ('250 ms, 4 slots', '-')
    """
    if one is None:
        return UNKNOWN
    quantile = "" if one.quantile is None else f"p{100 * one.quantile:g} "
    return f"{quantile}{seconds(one.latency_s)}, {one.slots} slot{'s' * (one.slots != 1)}"


def _became(row: DecisionRecord) -> str:
    if row.applied in (None, "recommended"):
        return row.applied or ""
    if row.applied == "failed":
        return f"failed: {row.applied_why}"
    if row.applied == "begun":
        return "begun, and the run ended"
    pause = "" if row.pause_s is None else f", paused {seconds(row.pause_s)}"
    return f"{row.verdict or 'applied'}{pause}"


def alike(row: DecisionRecord) -> tuple[str, str, float]:
    """What is shown as one where it follows upon each other. Changes that were carried out stand alone."""
    return (row.kind, row.reason, row.at_s if row.kind == "change" and row.applied != "recommended" else 0.0)
