"""The table of a replayed run: recorded, reproduced, and under another plan, load or limit."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.control.whatif import ReplayedRun, WhatIf
from penstock.measure.window import Estimate
from penstock.report.formatting import seconds

_FEW_PERCENT = 0.2  # relative error of the simulator from which the reader is warned


def whatif_table(result: WhatIf, *, price_per_slot_hour: float | None = None) -> Group:
    """Return one row each for the record, its reproduction and the answer, and a sentence on the simulator's error."""
    target = result.target
    latency = "mean latency" if target is None else f"{target.statistic} latency"
    headings = ["", latency, "slot-hours", "changes"]
    if target is not None:
        headings.insert(2, f"above {seconds(target.seconds)}")
    if price_per_slot_hour is not None:
        headings.append("cost")
    table = Table(*headings, box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    rows = (("recorded", result.actual), ("simulated", result.reproduced), ("what if", result.answer))
    for name, run in rows:
        cells = [name, _text(run.latency, seconds), _text(run.slot_hours, _number), str(run.changes)]
        if target is not None:
            cells.insert(2, _text(run.late, _share))
        if price_per_slot_hour is not None:
            cells.append(_text(_money(run, price_per_slot_hour), _number))
        table.add_row(*cells)
    question = f"{result.dataflow}, {result.seconds / 60:.0f} minutes in {result.windows} windows: {result.question}"
    return Group(Text(question), table, Text(_remark(result)))


def _remark(result: WhatIf) -> str:
    error = result.correction - 1.0
    text = f"Recorded latencies are {result.correction:.2f} times the simulated ones; 'what if' is corrected by this."
    if abs(error) > _FEW_PERCENT:
        text += " The simulator reproduces this run badly, so the answer is uncertain."
    return text


def _money(run: ReplayedRun, price: float) -> Estimate:
    hours = run.slot_hours
    high = hours.low if hours.high is None else hours.high
    return Estimate(low=price * hours.low, value=price * (hours.value or 0.0), high=price * high)


def _text(estimate: Estimate | None, text: Callable[[float | None], str]) -> str:
    if estimate is None:
        return "-"
    if estimate.low == estimate.high:
        return text(estimate.value)
    return f"{text(estimate.value)} ({text(estimate.low)} to {text(estimate.high)})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
