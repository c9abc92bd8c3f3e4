"""The results of the arena as text."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.arena.matches import Match
from penstock.control.arena.standings import Bar, standings

HEADINGS = (
    "engine",
    "load",
    "policy",
    "cases",
    "late",
    "worst",
    "allowed in",
    "/ fixed",
    "/ schedule",
    "worst",
    "changes/h",
    "backlog",
    "recovery",
    "unbounded",
    "intervals",
)


def standings_cells(matches: Sequence[Match]) -> list[tuple[str, ...]]:
    """Return one row of texts per policy, engine and load, in the order of HEADINGS."""
    return [
        (
            row.engine,
            row.load,
            row.policy,
            str(row.cases),
            f"{row.late:.1%}",
            f"{row.most_late:.1%}",
            f"{row.within:.0%}",
            f"{row.fixed_cost:.2f}",
            f"{row.schedule_cost:.2f}",
            f"{row.most_schedule_cost:.2f}",
            f"{row.changes_per_hour:.1f}",
            f"{row.backlog_s:.0f} s",
            f"{row.recovery_s:.0f} s",
            str(row.unbounded),
            f"{row.covered}/{row.predicted}",
        )
        for row in standings(matches)
    ]


def standings_text(matches: Sequence[Match]) -> str:
    """Return a table of plain text."""
    return _aligned([HEADINGS, *standings_cells(matches)], left=3)


def bars_text(rows: Sequence[Bar]) -> str:
    """Return one line per bar, with the worst case."""
    return _aligned([("measure", "bar", "met", "worst", "in"), *bars_cells(rows)], left=2)


def bars_cells(rows: Sequence[Bar]) -> list[tuple[str, ...]]:
    return [(row.measure, row.bar, f"{row.met}/{row.cases}", f"{row.worst:.3g}", row.worst_cell) for row in rows]


def _aligned(rows: Sequence[Sequence[str]], *, left: int) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"
