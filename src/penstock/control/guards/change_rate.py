"""MaxChangesPerHour: a budget of changes, for policies that would never rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.decisions import Change, Decision, Reason
from penstock.control.situation import Memory, Policy, Situation

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class MaxChangesPerHour:
    """Counts the changes of the last 3600 s, whoever made them."""

    policy: Policy
    changes: int = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change):
            made = sum(situation.now_s - one.at_s < HOUR_S for one in situation.changes)
            if made >= self.changes:
                why = f"{made} changes within the last hour, and {self.changes} are allowed"
                return decision.held(Reason.TOO_MANY_CHANGES, why), memory
        return decision, memory
