"""A contest of policies as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from penstock.control.arena.comparison import PolicySummary


def table(title: str, ranked: Sequence[PolicySummary]) -> Table:
    drawn = Table(
        "policy", "share", "worst", "reached", "after", "most", "changes", "slot-h", "missed", "paused",
        box=box.SIMPLE, pad_edge=False, padding=0, title=title, title_justify="left", caption_justify="left",
        caption="share of the best plan; starts from which it was reached, and after how many\n"
        "changes; slot-hours; windows with more than twice the best latency",
    )  # fmt: skip
    for one in ranked:
        drawn.add_row(
            one.policy,
            f"{one.share:.1%}",
            f"{one.worst_share:.1%}",
            f"{one.reached}/{one.starts}",
            "-" if one.rounds is None else f"{one.rounds:g}",
            "-" if one.most_rounds is None else str(one.most_rounds),
            f"{one.changes:g}",
            f"{one.slot_hours:.1f}",
            f"{one.violations:g}",
            f"{one.pause_s:.0f} s",
        )
    return drawn
