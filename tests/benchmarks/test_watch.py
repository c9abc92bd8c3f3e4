"""The verdicts of the benchmark of `watch`: what counts as correct, and what makes the run fail."""

from __future__ import annotations

import pytest

from benchmarks.watch import EXECUTORS, PROGRAMS, SLOTS, failed, verdict
from penstock.plan import Plan
from penstock.store import DecisionRecord

CAPACITY = 600.0  # rows/s of three executors; two sustain 400 and one 200


def said(code: str, reason: str = "", executors: int | None = None) -> DecisionRecord:
    plan = Plan(dataflow="theirs", replicas={}, cuts=frozenset(), slots=EXECUTORS * SLOTS)
    new = None if executors is None else plan.replace(slots=executors * SLOTS)
    return DecisionRecord(
        at_s=0.0,
        window=1,
        policy="mst",
        mode="recommend",
        kind="hold" if new is None else "change",
        reason_code=code,
        reason=reason,
        inputs={},
        binding=None,
        alternatives=(),
        needs_slots=None,
        old=plan,
        new=new,
        before=None,
        expected=None,
    )


@pytest.mark.parametrize(
    ("load", "row", "expected"),
    [
        (0.05, said("within-target"), "WRONG: fewer suffice"),
        (0.05, said("not-yet"), "WRONG: fewer suffice"),
        (0.05, said("within-target", "Whether 2 would suffice is unknown"), "unknown"),
        (0.05, said("release", executors=1), "correct"),
        (0.5, said("release", executors=1), "WRONG: too few"),
        (0.5, said("shortage", executors=4), "WRONG: not needed"),
        (0.85, said("within-target"), "correct"),
        (1.5, said("within-target"), "WRONG: too few"),
        (1.5, said("missing-metrics"), "unknown"),
        (1.5, said("shortage", executors=5), "WRONG: too few"),  # its twelve tasks take two turns on ten slots, too
        (1.5, said("shortage", executors=6), "correct"),
        (1.5, said("at-limit"), "WRONG: suffices"),
    ],
)
def test_a_statement_is_compared_with_the_capacity(load: float, row: DecisionRecord, expected: str) -> None:
    assert verdict(PROGRAMS["tasks"], (CAPACITY, CAPACITY), load * CAPACITY, row) == expected


def test_a_query_that_ends_by_itself_needs_no_number_of_executors() -> None:
    program = PROGRAMS["available now"]
    verdicts = [
        verdict(program, (CAPACITY, CAPACITY), 0.5 * CAPACITY, row)
        for row in (said("missing-metrics"), said("idle"), said("release", executors=1), said("within-target"))
    ]
    assert verdicts == ["unknown", "unknown", "WRONG: it ends by itself", "WRONG: it ends by itself"]


def test_wrong_undecided_and_mostly_unknown_statements_fail_the_run() -> None:
    row = said("within-target")
    undecided = verdict(PROGRAMS["tasks"], (CAPACITY, 1.6 * CAPACITY), 0.85 * CAPACITY, row)
    assert undecided == "undecided: correct before, WRONG: fewer suffice after"
    good = [("tasks", "correct")] * 3
    assert failed([*good, ("tasks", "unknown"), ("available now", "unknown")]) == []
    assert failed([*good, ("driver", "WRONG: too few")]) == ["driver: WRONG: too few"]
    assert failed([*good, ("tasks", undecided)]) == [f"tasks: {undecided}"]
    assert failed([*good, ("tasks", "unknown"), ("tasks", "unknown")]) == [
        "2 of 5 statements are unknown; at most 25% may be"
    ]
