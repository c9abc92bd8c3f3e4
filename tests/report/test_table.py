from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from penstock.plan import ExecutorGroup, Plan
from penstock.report.live_table import window_line, window_table
from tests.support.sample_windows import operator, window

PLAN = Plan(dataflow="wordcount", cuts=frozenset({"split"}), replicas={"split": 2, "count": 4}, slots=4)


def drawn(width: int, shown: object) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(shown)
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_is_cut_off_at_this_width(width: int) -> None:
    long = operator(
        "break_in_attempts_by_address_and_hour_of_the_day_and_user_and_everything_else_of_the_line", rows_in=3
    )
    shown = window()
    shown = msgspec.structs.replace(shown, operators=(*shown.operators, long))
    lines = drawn(width, window_table(shown, PLAN))
    assert all(len(text) <= width for text in lines)
    assert lines[0].strip() == "wordcount · 2,000 rows/s · latency p50 810 ms p95 1.62 s · 4 slots · plan 1"
    cells = [text.split() for text in lines]
    assert ["lines", "2,000", "2,000", "1,234,567", "-", "-", "-"] in cells
    assert ["split", "2,000", "18,000", "-", "12.5", "us", "2", "1%"] in cells
    assert ["count", "18,000", "4,500", "-", "2.1", "ms", "4", "88%"] in cells
    assert any(row and row[0].startswith("break_in") and row[0].endswith("…") for row in cells)


def test_a_line_under_each_cut() -> None:
    lines = drawn(80, window_table(window(), PLAN))
    (split,) = (number for number, text in enumerate(lines) if text.strip().startswith("split"))
    assert set(lines[split + 1].strip()) == {"─"}
    assert "count" in lines[split + 2]


def test_the_groups_of_executors_are_below_the_table() -> None:
    groups = {"counting": ExecutorGroup(operators=("count",), slots=2)}
    lines = drawn(80, window_table(window(), PLAN.replace(slots=5, groups=groups)))
    assert lines[-1].strip() == "group counting: 2 slots for count"


def test_unknown_values_are_dashes() -> None:
    nothing = msgspec.structs.replace(window(latency=False), external_rows_per_s=None, operators=(operator("a"),))
    lines = drawn(80, window_table(nothing))
    assert lines[0].strip() == "run · - rows/s · latency unknown · plan 1"
    assert ["a", *"------"] in [text.split() for text in lines]
    assert window_line(nothing) == "- rows/s | a ->-/s"
