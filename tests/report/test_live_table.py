"""The live table in a real terminal: it is updated in place and nothing scrolls."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.report.live_table import HEADINGS
from tests.support.terminal_screen import Screen, output_in_terminal

WINDOWS = 40  # their tables would fill the terminal many times
PROGRAM = f"""
import msgspec
from penstock.plan import Plan
from penstock.report.live_table import LiveTable
from tests.support.sample_windows import window

plan = Plan(dataflow="wordcount", cuts=frozenset({{"split"}}), replicas={{"split": 2, "count": 4}}, slots=4)
with LiveTable() as table:
    for number in range({WINDOWS}):
        table.show(msgspec.structs.replace(window(number), external_rows_per_s=1000.0 + number), plan)
        if number in (10, 20):
            table.say(f"a message after window {{number}}")
"""


@pytest.mark.parametrize(("width", "height"), [(80, 24), (132, 14)])
def test_the_table_is_updated_in_place(width: int, height: int) -> None:
    output = output_in_terminal([sys.executable, "-c", PROGRAM], width=width, height=height)
    assert all(f"{1000 + number:,} rows/s" in output for number in range(WINDOWS))  # every window was shown
    screen = Screen(width, height)
    screen.write(output)
    assert screen.scrolled == 0
    shown = [line.rstrip() for line in screen.lines if line.strip()]
    assert shown[:2] == ["a message after window 10", "a message after window 20"]
    table = shown[2:]
    assert table[0] == "wordcount · 1,039 rows/s · latency p50 810 ms p95 1.62 s · 4 slots · plan 1"
    words = [line.split()[0] for line in table if "─" not in line]
    assert words == ["wordcount", HEADINGS[0], "lines", "split", "count", "out"]
    # Each window returns to the first line of the table before it, and so does each message.
    assert screen.cursor_ups >= (WINDOWS - 1) * (len(table) - 1)


def test_output_that_is_not_a_terminal_has_one_line_per_window_and_no_control_sequences() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == WINDOWS + 2 and "\x1b" not in done.stdout
    assert "1,039 rows/s" in lines[-1]
