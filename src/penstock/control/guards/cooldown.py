"""Cooldown: so long between two changes (T_ra of DRS)."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.decisions import Change, Decision, Reason
from penstock.control.situation import Memory, Policy, Situation


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Counts from the end of the last change, whoever made it; a run's start is no change."""

    policy: Policy
    seconds: float = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change) and situation.changes:
            since_s = situation.now_s - situation.changes[-1].at_s
            if since_s < self.seconds:
                why = f"the last change was {since_s:.0f} s ago, and {self.seconds:g} s must pass between two"
                return decision.held(Reason.COOLDOWN, why), memory
        return decision, memory
