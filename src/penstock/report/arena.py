"""The comparison of policies as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from penstock.control.arena.comparison import PolicySummary


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
