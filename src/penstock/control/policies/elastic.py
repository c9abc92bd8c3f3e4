"""Elastic: add the number of executors to the plans of a policy that only distributes slots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from penstock.control.policy import Change, Decision, Memory, Policy, Situation


@dataclass(frozen=True, slots=True)
class Elastic:
    """Give each plan the fewest executors that provide the slots it uses, from `least` to `most`."""

    policy: Policy
    slots_each: int = field(kw_only=True)
    least: int = field(default=1, kw_only=True)
    most: int = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change):
            slots = situation.topology.slots(decision.plan, micro_batch=situation.micro_batch)
            executors = min(self.most, max(self.least, math.ceil(slots / self.slots_each)))
            decision = replace(decision, plan=decision.plan.replace(slots=executors * self.slots_each))
        return decision, memory
