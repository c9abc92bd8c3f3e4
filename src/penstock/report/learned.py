"""The memory of policy auto for a terminal: costs of the operators, and how each plan has done."""

from __future__ import annotations

from rich import box
from rich.table import Table

from penstock.control.policies.auto.learned import Learned
from penstock.report.formatting import UNKNOWN, seconds
from penstock.store import DecisionRecord


def learned_tables(row: DecisionRecord) -> list[Table]:
    """Return the costs and the plans that the memory of this decision contains; none without such a memory."""
    learned = Learned.of(row.memory)
    return [table for table in (_costs(learned), _plans(learned)) if table.row_count]


def _costs(learned: Learned) -> Table:
    table = Table(title="Learned costs", title_justify="left", box=box.HORIZONTALS, pad_edge=False)
    for heading in ("operator", "seconds per row", "error", "rows out per row"):
        table.add_column(heading, justify="left" if heading == "operator" else "right")
    for name, sums in sorted(learned.operators.items()):
        if not sums.timed_rows:
            continue
        table.add_row(
            name,
            f"{sums.busy_s / sums.timed_rows:.3g}",
            f"{sums.error:.1%}",
            UNKNOWN if not sums.rows_in else f"{sums.rows_out / sums.rows_in:.3g}",
        )
    return table


def _plans(learned: Learned) -> Table:
    """Windows decay with time, so their numbers are rounded."""
    table = Table(title="Plans by their results", title_justify="left", box=box.HORIZONTALS, pad_edge=False)
    for heading in ("slots", "windows", "late", "latency", "by the model"):
        table.add_column(heading, justify="right")
    for record in sorted(learned.plans.values(), key=lambda known: known.slots):
        windows, late = record.counts(int(level) for level in record.levels)
        if windows < 0.5:
            continue
        table.add_row(
            str(record.slots),
            f"{windows:.0f}",
            f"{late / windows:.1%}",
            UNKNOWN if record.windows <= 0 else seconds(record.measured_s / record.windows),
            UNKNOWN if record.windows <= 0 else seconds(record.predicted_s / record.windows),
        )
    return table
