"""Rows of decisions with the values that a test is about."""

from __future__ import annotations

from penstock.plan import Plan
from penstock.planning.plan_outcome import PlanOutcome
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
