"""Bounded: no plan beyond so many slots in all, or so many replicas of a region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.decisions import Change, Decision, Reason
from penstock.control.situation import Memory, Policy, Situation
from penstock.plan.plan import Plan


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
        decision, memory = self.policy.decide(situation.within(self._most(situation)), memory)
        if isinstance(decision, Change) and (why := self.forbids(decision.plan, situation)) is not None:
            return decision.held(Reason.OUT_OF_BOUNDS, why), memory
        return decision, memory

    def forbids(self, plan: Plan, situation: Situation) -> str | None:
        """Why; a plan that is over a bound already may be made smaller, if not small enough."""
        most, slots = self._most(situation), situation.shape.slots(plan, micro_batch=situation.micro_batch)
        if slots > max(most, situation.slots):
            return f"{slots} slots, and {most} may be used"
        if plan.slots > max(situation.max_slots, situation.plan.slots):
            return f"executors with {plan.slots} slots, and {situation.max_slots} may be had"
        for region, count in plan.replicas.items():
            if count > max(self.max_replicas.get(region, count), situation.plan.replicas[region]):
                return f"{count} replicas of '{region}', and {self.max_replicas[region]} are allowed"
        return None

    def _most(self, situation: Situation) -> int:
        return situation.max_slots if self.max_slots is None else min(self.max_slots, situation.max_slots)


def forbidden(policy: Policy, plan: Plan, situation: Situation) -> str | None:
    """Why one of the bounds around a policy, or the slots that may be had, would not let it have this plan."""
    guard: object = Bounded(policy)
    while guard is not None:
        if isinstance(guard, Bounded) and (why := guard.forbids(plan, situation)) is not None:
            return why
        guard = getattr(guard, "policy", None)  # what it is around, if it is a guard
    return None
