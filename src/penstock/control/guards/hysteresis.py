"""Hysteresis: a dead band around the plan in force, in gain and in time."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.decisions import Change, Decision, Reason
from penstock.control.situation import Memory, Policy, Situation
from penstock.planning.plan_outcome import PlanOutcome

WANTED, AFTER = "hysteresis.wanted", "hysteresis.after"


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """A change must gain the share `gain`, and must be wanted in so many `turns` one after another, since the last one.

    The gain is in the latency, 1 - expected / staying, or for a release in slots. Where either is not known (the plan
    in force does not keep up, a policy without a latency model) it counts as enough.
    """

    policy: Policy
    gain: float = field(default=0.05, kw_only=True)
    turns: int = field(default=1, kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if not isinstance(decision, Change):
            return decision, {**memory, WANTED: 0}
        gained = relative_gain(decision.staying, decision.expected)
        if gained is not None and gained < self.gain:
            why = f"it would gain {gained:.1%}, and less than {self.gain:.0%} is not worth a change"
            return decision.held(Reason.TOO_LITTLE_GAIN, why), {**memory, WANTED: 0}
        made = len(situation.changes)
        wanted = 1 + (memory.get(WANTED, 0) if memory.get(AFTER) == made else 0)
        memory = {**memory, WANTED: wanted, AFTER: made}
        if wanted < self.turns:
            why = f"wanted for {wanted:g} turns, and it takes {self.turns}"
            return decision.held(Reason.NOT_YET, why), memory
        return decision, memory


def relative_gain(staying: PlanOutcome, expected: PlanOutcome) -> float | None:
    """
    >>> relative_gain(PlanOutcome(slots=4, latency_s=2.0), PlanOutcome(slots=6, latency_s=1.5))
    0.25
    >>> relative_gain(PlanOutcome(slots=8, latency_s=0.5), PlanOutcome(slots=6, latency_s=0.7))
    0.25
    """
    if expected.slots < staying.slots:
        return 1.0 - expected.slots / staying.slots
    if staying.latency_s is None or expected.latency_s is None:
        return None
    return 1.0 - expected.latency_s / staying.latency_s
