"""A rehearsal as a table, and the changes that were made in it."""

from __future__ import annotations

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.control.simulation import SimulationSummary
from penstock.plan.plan import diff
from penstock.store import DecisionRecord


def table(sums: SimulationSummary, changes: list[DecisionRecord]) -> Group:
    drawn = Table(
        "policy", "hours", "slot-hours", "violations", "changes", "rolled back", "paused", "mean latency",
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    drawn.add_row(
        sums.policy,
        f"{sums.seconds / 3600:.2f}",
        f"{sums.slot_seconds / 3600:.2f}",
        "-" if sums.violations is None else f"{sums.violations} of {sums.windows}",
        str(sums.changes),
        str(sums.rolled_back),
        f"{sums.pause_s:.1f} s",
        "-" if sums.mean_latency_s is None else f"{sums.mean_latency_s:.3g} s",
    )
    made = Table("at", "change", "why", "verdict", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for row in changes:
        if row.new is not None:
            made.add_row(f"{row.at_s:,.0f} s", str(diff(row.old, row.new)), str(row.reason), row.verdict or "-")
    last = Text("" if sums.last_hold is None else f"at the end: {sums.last_hold}")
    return Group(drawn, made, last) if changes else Group(drawn, last)
