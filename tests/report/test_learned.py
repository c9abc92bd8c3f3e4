"""The printed memory of policy auto."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from penstock.control.policies.auto.learned import Learned, OperatorSums
from penstock.report.learned import learned_tables
from tests.support.decision_rows import change


def printed(learned: Learned | None) -> str:
    row = change(1.2, "kept")
    if learned is not None:
        row = msgspec.structs.replace(row, memory=learned.memory())
    console = Console(file=io.StringIO(), width=100, markup=False)  # as in the command
    for table in learned_tables(row):
        console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_costs_and_plans_are_printed() -> None:
    """1,000 rows took 4 s and became 250; 1 of 4 windows was late; 2 s were measured where the model says 1 s."""
    learned = Learned(
        operators={"[match]": OperatorSums(rows_in=1000.0, rows_out=250.0, busy_s=4.0, timed_rows=1000.0)}
    )
    for late in (False, False, True, False):
        learned.add_result("a", 12, level=10, late=late, measured_s=2.0, predicted_s=1.0, at_s=0.0, span_s=0.0)
    lines = printed(learned).splitlines()
    (cost,) = [line.split() for line in lines if "match" in line]
    assert (cost[1], cost[3]) == ("0.004", "0.25")
    assert [line.split() for line in lines if "25.0%" in line] == [["12", "4", "25.0%", "2", "s", "1", "s"]]


def test_nothing_is_printed_without_a_memory_of_policy_auto() -> None:
    assert printed(None) == printed(Learned()) == ""
