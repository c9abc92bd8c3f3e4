"""Decisions: hold or change, with the reason as a code, and all that led to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import Alternative, PlanOutcome


class Reason(StrEnum):
    """Why. The first group changes something, the others hold."""

    SHORTAGE = "shortage"  # more slots: the target is missed, or the plan does not keep up
    RELEASE = "release"  # fewer slots meet the target
    REALLOCATION = "reallocation"  # as many slots, split otherwise
    CONGESTION = "congestion"  # an operator is busier than it should be, or gets more than it does
    TRUE_RATES = "true-rates"  # the true rates call for other counts
    ROLL_BACK = "roll-back"  # the last change did not bring what it promised

    BEST = "best"  # the plan is the best there is
    WITHIN_TARGET = "within-target"  # nothing to gain, nothing to release
    AT_LIMIT = "at-limit"  # more would be needed than may be used
    CATCHING_UP = "catching-up"  # the plan suffices for the load; what piled up before has to drain
    IDLE = "idle"  # no rows arrive

    MISSING = "missing-metrics"
    STALE = "stale-metrics"
    WARMING_UP = "warming-up"  # too soon after a change to measure
    SETTLING = "settling"  # too few windows since the change

    COOLDOWN = "cooldown"
    OUT_OF_BOUNDS = "out-of-bounds"
    TOO_MANY_CHANGES = "too-many-changes"
    TOO_LITTLE_GAIN = "too-little-gain"
    NOT_YET = "not-yet"  # not wanted for long enough
    NOT_PAID_BACK = "not-paid-back"

    REFUTED = "refuted"  # this plan failed under this load before
    POLICY_FAILED = "policy-failed"


Inputs = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Nothing is changed."""

    reason: Reason
    why: str  # in words, with the numbers
    inputs: Inputs = field(default_factory=dict)  # what it was decided on
    binding: str | None = None  # the operator that holds everything back
    alternatives: tuple[Alternative, ...] = ()
    needs_slots: int | None = None  # what would meet the demand, where that is more than there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another plan."""

    plan: Plan
    reason: Reason
    why: str
    staying: PlanOutcome  # what the present plan is expected to bring
    expected: PlanOutcome  # what the other plan is expected to bring: its promise
    inputs: Inputs = field(default_factory=dict)
    binding: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    needs_slots: int | None = None

    def held(self, reason: Reason, why: str) -> Hold:
        """What becomes of it when a guard says no; what it would have done is among the alternatives."""
        rejected = Alternative(replicas=self.plan.replicas, expected=self.expected, why=why)
        return Hold(
            reason=reason,
            why=f"{why} ({self.reason}: {self.why})",
            inputs=self.inputs,
            binding=self.binding,
            alternatives=(rejected, *self.alternatives),
            needs_slots=self.needs_slots,
        )


Decision = Hold | Change
