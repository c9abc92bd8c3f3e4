"""Threshold: the busiest operator above 80% of its capacity gets one more replica, one per round.

Source: the baseline of Liu et al., "Stepwise auto-profiling", TAAS 12(4), 2017, section 6.1.3. Capacity is their
equation 2: the share of the window in which a task executes. The policy never removes a replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.demand import Demand, DemandPolicy
from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policy import Change, Decision, Hold, Inputs, Policy, Reason, Situation
from penstock.plan.counts import slots_text
from penstock.planning.plan_outcome import Alternative, PlanOutcome


def build(options: PolicyParameters) -> Policy:
    return Threshold()


@dataclass(frozen=True, slots=True)
class Threshold(DemandPolicy):
    above: float = 0.8
    name: str = field(default="threshold", init=False)

    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        utilisation = _utilisation(situation)
        unknown = [name for name in demand.loads if name not in utilisation]
        if unknown:
            names = ", ".join(f"'{name}'" for name in unknown)
            return Hold(reason_code=Reason.MISSING, reason=f"The utilisation of {names} is not known yet.")
        inputs: Inputs = {f"{name}.capacity": utilisation[name] for name in demand.loads}
        busiest_first = sorted(demand.loads, key=lambda name: -utilisation[name])
        over = [name for name in busiest_first if utilisation[name] > self.above]
        if not over:
            busiest = busiest_first[0]
            reason = (
                f"The busiest operator '{busiest}' is {utilisation[busiest]:.0%} busy; the limit is {self.above:.0%}."
            )
            return Hold(reason_code=Reason.WITHIN_TARGET, reason=reason, inputs=inputs, binding=busiest)
        # If an operator cannot get another replica, the next busiest one is considered.
        rejected: list[Alternative] = []
        staying = PlanOutcome(slots=situation.slots)
        for name in over:
            count = situation.plan.replicas[name] + 1
            if demand.loads[name].max_replicas == 1:
                reason = f"Operator '{name}' can have only one replica."
                rejected.append(Alternative(replicas={name: count}, expected=staying, reason=reason))
                continue
            plan = situation.topology.rescaled(situation.plan, {name: count})
            slots = situation.topology.slots(plan, micro_batch=situation.micro_batch)
            if slots > situation.max_slots:
                reason = f"The plan uses {slots_text(slots)}, but only {situation.max_slots} are allowed."
                rejected.append(Alternative(replicas={name: count}, expected=PlanOutcome(slots=slots), reason=reason))
                continue
            return Change(
                plan=plan,
                reason_code=Reason.CONGESTION,
                reason=f"Operator '{name}' is {utilisation[name]:.0%} busy, above {self.above:.0%}, and gets {count} "
                f"replicas instead of {count - 1}.",
                staying=staying,
                expected=PlanOutcome(slots=slots),
                inputs=inputs,
                binding=name,
                alternatives=tuple(rejected),
            )
        names = ", ".join(f"'{name}'" for name in over)
        return Hold(
            reason_code=Reason.AT_LIMIT,
            reason=f"Operators above {self.above:.0%} busy ({names}) cannot get another replica within "
            f"{slots_text(situation.max_slots)}.",
            inputs=inputs,
            binding=over[0],
            alternatives=tuple(rejected),
            needs_slots=situation.slots + 1,
        )


def _utilisation(situation: Situation) -> dict[str, float]:
    """Return the busy share of each region; its operators take turns on its replicas.

    In micro-batches the stages of a query take turns as well. Each stage is busy only during its turn, so its share is
    scaled up to the busy share of the whole query.
    """
    assert situation.window is not None
    by_operator = {operator.operator: operator.utilisation for operator in situation.window.operators}
    by_region: dict[str, float] = {}
    for region in situation.topology.regions:
        shares = [share for name in region.operators if (share := by_operator.get(name)) is not None]
        if shares:
            by_region[region.name] = sum(shares)
    if situation.micro_batch:
        for query in situation.topology.queries(situation.plan.cuts):
            stages = {name: by_region[name] for name in query if name in by_region}
            total, largest = sum(stages.values()), max(stages.values(), default=0.0)
            by_region |= {name: share / largest * total for name, share in stages.items() if share}
    return by_region
