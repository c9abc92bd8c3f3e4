"""The live table of a run: one row an operator, from a window and nothing else."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from penstock.measure.window import OperatorWindow, Window
from penstock.plan.plan import Plan

UNKNOWN = "-"


def table(window: Window, plan: Plan | None = None, *, name: str | None = None) -> Table:
    """Operator, rows/s in and out, backlog, cost a row, replicas, utilisation; a line under each cut of the plan."""
    # No vertical lines: at 80 columns they would cost an operator with a long name its name.
    drawn = Table(title=title(window, plan, name=name), title_justify="left", box=box.HORIZONTALS, pad_edge=False)
    drawn.add_column("operator")  # the only one that may shrink
    for heading in ("rows/s in", "rows/s out", "backlog", "cost/row", "replicas", "busy"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    span_s = window.end_s - window.start_s
    for one in window.operators:
        operator, *numbers = cells(one, span_s)
        shrinks = Text(operator, no_wrap=True, overflow="ellipsis")
        drawn.add_row(shrinks, *numbers, end_section=plan is not None and one.operator in plan.cuts)
    return drawn


def title(window: Window, plan: Plan | None = None, *, name: str | None = None) -> Text:
    """In one line: the dataflow, what arrives, how long a row stays, how much of the machine there is."""
    parts = [name or (plan.dataflow if plan else "run")]
    parts.append(f"{count(window.external_rows_per_s)} rows/s")
    if window.latency is None:
        parts.append(f"latency p50 {UNKNOWN} p95 {UNKNOWN}")
    else:
        parts.append(f"latency p50 {seconds(window.latency.p50_s)} p95 {seconds(window.latency.p95_s)}")
    if plan is not None:
        parts.append(f"{plan.slots} slot{'s' * (plan.slots != 1)}")
    parts.append(f"plan {window.generation}")
    return Text(" · ".join(parts), no_wrap=True, overflow="ellipsis", style="bold")


def line(window: Window) -> str:
    """One line a window, for where there is no terminal."""
    parts = [f"{count(window.external_rows_per_s)} rows/s"]
    if window.latency is not None:
        parts.append(f"latency p50 {seconds(window.latency.p50_s)} p95 {seconds(window.latency.p95_s)}")
    span_s = window.end_s - window.start_s
    for one in window.operators:
        _, rows_in, rows_out, backlog, cost, replicas, _ = cells(one, span_s)
        shown = [f"{rows_in}>{rows_out}/s"]
        shown += [f"x{replicas}"] * (replicas != UNKNOWN)
        shown += [f"{cost}/row"] * (cost != UNKNOWN)
        shown += [f"backlog {backlog}"] * (backlog not in (UNKNOWN, "0"))
        parts.append(f"{one.operator} {' '.join(shown)}")
    return " | ".join(parts)


def cells(one: OperatorWindow, span_s: float) -> tuple[str, str, str, str, str, str, str]:
    arriving = one.input_rows_per_s if one.input_rows_per_s is not None else _per_s(one.rows_in, span_s)
    return (
        one.operator,
        count(arriving),
        count(_per_s(one.rows_out, span_s)),
        count(one.backlog_rows),
        seconds(one.seconds_per_row),
        UNKNOWN if one.replicas is None else str(one.replicas),
        UNKNOWN if one.utilisation is None else f"{one.utilisation:.0%}",
    )


def count(number: float | None) -> str:
    """
    >>> count(None), count(0), count(0.25), count(12.5), count(2000.4), count(1234567), count(25_000_000)
    ('-', '0', '0.25', '12', '2,000', '1,234,567', '25.0M')
    """
    if number is None:
        return UNKNOWN
    if 0 < number < 10 and number != int(number):
        return f"{number:.2g}"
    return f"{number:,.0f}" if number < 1e7 else f"{number / 1e6:,.1f}M"


def seconds(time_s: float | None) -> str:
    """
    >>> seconds(None), seconds(0.0), seconds(2e-7), seconds(12.5e-6), seconds(0.0021), seconds(0.81), seconds(75.0)
    ('-', '0 s', '0.2 us', '12.5 us', '2.1 ms', '810 ms', '75 s')
    """
    if time_s is None:
        return UNKNOWN
    if time_s == 0:
        return "0 s"
    for unit, in_s in (("us", 1e-6), ("ms", 1e-3)):
        if round(time_s / in_s, 1) < 1000:
            return f"{_three_digits(time_s / in_s)} {unit}"
    return f"{_three_digits(time_s)} s"


def _three_digits(number: float) -> str:
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.2f}".rstrip("0").rstrip(".") if number < 10 else f"{number:.1f}".rstrip("0").rstrip(".")


def _per_s(rows: int | None, span_s: float) -> float | None:
    return None if rows is None or span_s <= 0 else rows / span_s
