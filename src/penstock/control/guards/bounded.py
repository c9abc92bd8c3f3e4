"""Bounded: no plan beyond so many slots in all, or so many replicas of a region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.decisions import Change, Decision, Reason
from penstock.control.situation import Memory, Policy, Situation


@dataclass(frozen=True, slots=True)
class Bounded:
    """The policy is told the bound on slots and plans within it; a plan that breaks a bound all the same is held."""

    policy: Policy
    max_slots: int | None = field(default=None, kw_only=True)
    max_replicas: Mapping[str, int] = field(default_factory=dict, kw_only=True)  # by region

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        most = situation.max_slots if self.max_slots is None else min(self.max_slots, situation.max_slots)
        decision, memory = self.policy.decide(situation.within(most), memory)
        if isinstance(decision, Change):
            slots = situation.shape.slots(decision.plan, micro_batch=situation.micro_batch)
            # A plan that is over the bound already may be made smaller, if not small enough.
            if slots > max(most, situation.slots):
                return decision.held(Reason.OUT_OF_BOUNDS, f"{slots} slots, and {most} may be used"), memory
            for region, count in decision.plan.replicas.items():
                if count > max(self.max_replicas.get(region, count), situation.plan.replicas[region]):
                    why = f"{count} replicas of '{region}', and {self.max_replicas[region]} are allowed"
                    return decision.held(Reason.OUT_OF_BOUNDS, why), memory
        return decision, memory
