"""How often the intervals of predictions were correct."""

from __future__ import annotations

from penstock.report.decisions import interval_summary
from tests.support.decision_rows import change


def test_only_changes_that_were_evaluated_count() -> None:
    evaluated = [change(1.2, "kept"), change(1.9, "kept"), change(2.5, "fell short")]
    others = [change(9.0, "load changed"), change(9.0, "superseded"), change(None, "kept"), change(9.0, None)]
    without_interval = [change(1.2, "kept", low_s=None)]
    assert interval_summary([*evaluated, *others, *without_interval]) == (
        "The observed latency was within the expected interval after 2 of 3 changes."
    )
    assert interval_summary([*others, *without_interval]) is None
