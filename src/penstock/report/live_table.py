"""The live table of a run: one row per operator, updated in place in a terminal."""

from __future__ import annotations

import time
from types import TracebackType

import msgspec
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.measure.window import Latency, OperatorWindow, SharedCost, Window
from penstock.plan.plan import Plan
from penstock.report.call_remarks import call_remark
from penstock.report.event_time import event_time_remarks
from penstock.report.formatting import UNKNOWN, count, in_parentheses, percent, plural, seconds

HEADINGS = ("operator", "rows/s in", "rows/s out", "backlog", "cost/row", "replicas", "busy")


class LiveTable:
    """Shows windows as they arrive: a table updated in place in a terminal, one line per window elsewhere.

    `as_json` prints one JSON document per window instead. `quiet` prints nothing.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._quiet = quiet
        self._as_json = as_json
        self._live: Live | None = None

    def show(self, window: Window, plan: Plan | None) -> None:
        """Show a window; pass this method to the loop as `on_window`."""
        if self._as_json:
            print(msgspec.json.encode(window).decode(), flush=True)
        elif self._quiet:
            return
        elif not self._console.is_terminal:
            clock = time.strftime("%H:%M:%S", time.localtime(window.end_s))
            self._console.print(f"{clock} {window_line(window)}", soft_wrap=True, markup=False)
        else:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(window_table(window, plan), refresh=True)

    def say(self, text: str) -> None:
        """Print a permanent line, above the table if there is one."""
        if not self._quiet and not self._as_json:
            self._console.print(text, soft_wrap=True, markup=False)

    def __enter__(self) -> LiveTable:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def window_table(window: Window, plan: Plan | None = None, *, name: str | None = None) -> Table:
    """Return the table of a window, with a line under each cut of the plan."""
    # Vertical lines would take the space that long operator names need at 80 columns.
    remarks = [*event_time_remarks(window), *call_remarks(window), *shared_cost_notes(window), *group_remarks(plan)]
    table = Table(
        title=_title(window, plan, name),
        title_justify="left",
        caption="\n".join(remarks) or None,
        caption_justify="left",
        box=box.HORIZONTALS,
        pad_edge=False,
    )
    table.add_column(HEADINGS[0])  # the only column that may be shortened
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    window_s = window.end_s - window.start_s
    for operator in window.operators:
        operator_name, *numbers = operator_cells(operator, window_s)
        shortened_name = Text(operator_name, no_wrap=True, overflow="ellipsis")
        table.add_row(shortened_name, *numbers, end_section=plan is not None and operator.operator in plan.cuts)
    return table


def _latency_text(latency: Latency) -> str:
    deviation = "" if latency.sd_s is None else f" sd {seconds(latency.sd_s)}"
    return f"latency p50 {seconds(latency.p50_s)} p95 {seconds(latency.p95_s)}{deviation}"


def window_line(window: Window) -> str:
    """Return a window as one line, for output that is not a terminal."""
    parts = ["warming up"] if window.warm_up else []
    parts.append(f"{count(window.external_rows_per_s)} rows/s")
    if window.latency is not None:
        parts.append(_latency_text(window.latency))
    window_s = window.end_s - window.start_s
    for operator in window.operators:
        _, rows_in, rows_out, backlog, cost, replicas, _ = operator_cells(operator, window_s)
        numbers = [f"{rows_in}>{rows_out}/s"]
        numbers += [f"x{replicas}"] * (replicas != UNKNOWN)
        numbers += [f"{cost}/row"] * (cost != UNKNOWN and operator.shared_cost is None)
        numbers += [f"backlog {backlog}"] * (backlog not in (UNKNOWN, "0"))
        if operator.calls is not None and operator.calls.in_flight is not None:
            numbers.append(f"{operator.calls.in_flight:.3g} of {operator.calls.threads} calls in flight")
        numbers += [f"late {count(operator.late_rows_total)}"] * bool(operator.late_rows_total)
        numbers += [f"dropped {count(operator.dropped_rows_total)}"] * bool(operator.dropped_rows_total)
        parts.append(f"{operator.operator} {' '.join(numbers)}")
    for shared in shared_costs(window):
        if shared.seconds_per_row is not None:
            parts.append(f"{' + '.join(shared.operators)} together {seconds(shared.seconds_per_row)}/row")
    return " | ".join(parts)


def shared_costs(window: Window) -> list[SharedCost]:
    """Return each shared cost of a window once."""
    shared = [operator.shared_cost for operator in window.operators if operator.shared_cost is not None]
    return list({cost.operators: cost for cost in shared}.values())


def shared_cost_notes(window: Window) -> list[str]:
    """Return one sentence for each group of operators whose cost was measured together."""
    return [
        f"( ) {' + '.join(shared.operators)}: cost and busy time of all together, per row into {shared.operators[0]}"
        for shared in shared_costs(window)
        if shared.seconds_per_row is not None
    ]


def call_remarks(window: Window) -> list[str]:
    """Return one sentence for each operator with concurrent calls."""
    return [
        call_remark(operator.operator, operator.calls) for operator in window.operators if operator.calls is not None
    ]


def group_remarks(plan: Plan | None) -> list[str]:
    """Return one sentence for each group of executors."""
    return [] if plan is None else [f"group {name}: {group}" for name, group in plan.groups.items()]


def operator_cells(operator: OperatorWindow, window_s: float) -> tuple[str, str, str, str, str, str, str]:
    """Return the texts of an operator's row in the order of HEADINGS. A shared cost is in parentheses."""
    rows_in_per_s = operator.input_rows_per_s
    shared = operator.shared_cost
    cost, busy = seconds(operator.seconds_per_row), percent(operator.utilisation)
    if shared is not None:
        cost, busy = in_parentheses(seconds(shared.seconds_per_row)), in_parentheses(percent(shared.utilisation))
    return (
        operator.operator,
        count(rows_in_per_s if rows_in_per_s is not None else _per_s(operator.rows_in, window_s)),
        count(_per_s(operator.rows_out, window_s)),
        count(operator.backlog_rows),
        cost,
        UNKNOWN if operator.replicas is None else str(operator.replicas),
        busy,
    )


def _title(window: Window, plan: Plan | None, name: str | None) -> Text:
    """One line with the dataflow, its input rate, its latency and its slots."""
    parts = [name or (plan.dataflow if plan else "run")]
    parts += ["warming up"] * window.warm_up
    parts.append(f"{count(window.external_rows_per_s)} rows/s")
    if window.latency is None:
        parts.append("latency unknown")
    else:
        parts.append(_latency_text(window.latency))
    if plan is not None:
        parts.append(plural(plan.slots, "slot"))
    parts.append(f"plan {window.generation}")
    return Text(" · ".join(parts), no_wrap=True, overflow="ellipsis", style="bold")


def _per_s(rows: int | None, window_s: float) -> float | None:
    return None if rows is None or window_s <= 0 else rows / window_s
