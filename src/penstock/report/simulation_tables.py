"""Tables of simulations: one simulation with its changes, and the comparison of policies."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.control.arena.comparison import PolicySummary
from penstock.control.simulation import SimulationSummary
from penstock.plan.plan import diff
from penstock.store import DecisionRecord


def simulation_tables(summary: SimulationSummary, changes: list[DecisionRecord]) -> Group:
    """Return the summary of a simulation, its changes, and the reason of the last hold."""
    totals = Table(
        "policy", "hours", "slot-hours", "violations", "changes", "rolled back", "paused", "mean latency",
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    totals.add_row(
        summary.policy,
        f"{summary.seconds / 3600:.2f}",
        f"{summary.slot_seconds / 3600:.2f}",
        "-" if summary.violations is None else f"{summary.violations} of {summary.windows}",
        str(summary.changes),
        str(summary.rolled_back),
        f"{summary.pause_s:.1f} s",
        "-" if summary.mean_latency_s is None else f"{summary.mean_latency_s:.3g} s",
    )
    change_table = Table("at", "change", "reason code", "verdict", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for row in changes:
        if row.new is not None:
            difference = str(diff(row.old, row.new))
            change_table.add_row(f"{row.at_s:,.0f} s", difference, str(row.reason_code), row.verdict or "-")
    last_hold = Text("" if summary.last_hold is None else f"at the end: {summary.last_hold}")
    return Group(totals, change_table, last_hold) if changes else Group(totals, last_hold)


def league_table(title: str, ranked: Sequence[PolicySummary]) -> Table:
    """Return one row per policy, the best first."""
    table = Table(
        "policy", "share", "worst", "reached", "after", "most", "changes", "slot-h", "missed", "paused",
        box=box.SIMPLE, pad_edge=False, padding=0, title=title, title_justify="left", caption_justify="left",
        caption="share: best latency / latency; reached: starts from which the best plan was reached,\n"
        "after: changes until then; missed: windows with more than twice the best latency",
    )  # fmt: skip
    for summary in ranked:
        table.add_row(
            summary.policy,
            f"{summary.share:.1%}",
            f"{summary.worst_share:.1%}",
            f"{summary.reached}/{summary.starts}",
            "-" if summary.rounds is None else f"{summary.rounds:g}",
            "-" if summary.most_rounds is None else str(summary.most_rounds),
            f"{summary.changes:g}",
            f"{summary.slot_hours:.1f}",
            f"{summary.violations:g}",
            f"{summary.pause_s:.0f} s",
        )
    return table
