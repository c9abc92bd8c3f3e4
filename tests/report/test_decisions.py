"""How often the intervals of predictions were correct."""

from __future__ import annotations

from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
from penstock.report.decisions import interval_summary
from penstock.store import DecisionRecord


def change(observed_s: float | None, verdict: str | None, *, low_s: float | None = 1.0) -> DecisionRecord:
    plan = Plan(dataflow="f", replicas={"op": 2}, slots=4)
    return DecisionRecord(
        at_s=0.0,
        window=1,
        policy="auto",
        mode="active",
        kind="change",
        reason_code="shortage",
        reason="The latency is above the target.",
        inputs={},
        binding=None,
        alternatives=(),
        needs_slots=None,
        old=plan,
        new=plan.replace(replicas={"op": 3}),
        before=None,
        expected=PlanOutcome(slots=3, latency_s=1.5, low_s=low_s, high_s=2.0),
        observed=None if observed_s is None else PlanOutcome(slots=3, latency_s=observed_s),
        verdict=verdict,  # type: ignore[arg-type]
    )


def test_only_changes_that_were_evaluated_count() -> None:
    evaluated = [change(1.2, "kept"), change(1.9, "kept"), change(2.5, "fell short")]
    others = [change(9.0, "load changed"), change(9.0, "superseded"), change(None, "kept"), change(9.0, None)]
    without_interval = [change(1.2, "kept", low_s=None)]
    assert interval_summary([*evaluated, *others, *without_interval]) == (
        "The observed latency was within the expected interval after 2 of 3 changes."
    )
    assert interval_summary([*others, *without_interval]) is None
