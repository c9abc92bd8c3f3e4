"""Elastic: add the number of executors to the plans of a policy that only distributes slots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from penstock.control.policy import Change, Decision, Memory, Policy, Situation


@dataclass(frozen=True, slots=True)
class Elastic:
    """Give each plan the fewest executors that provide the slots it uses, from `min_executors` to `max_executors`."""

    policy: Policy
    slots_per_executor: int = field(kw_only=True)
    min_executors: int = field(default=1, kw_only=True)
    max_executors: int = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        decision, memory = self.policy.decide(situation, memory)
        if isinstance(decision, Change):
            slots = situation.topology.slots(decision.plan, micro_batch=situation.micro_batch)
            executors = min(self.max_executors, max(self.min_executors, math.ceil(slots / self.slots_per_executor)))
            decision = replace(decision, plan=decision.plan.replace(slots=executors * self.slots_per_executor))
        return decision, memory
