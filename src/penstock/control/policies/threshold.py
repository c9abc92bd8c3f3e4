"""Threshold: the operator above 0.8 of its capacity gets one task more, the busiest first, one a round.

Source: the baseline of Liu et al., "Stepwise auto-profiling", TAAS 12(4), 2017, section 6.1.3, with capacity as in
their equation 2: the share of the window that a task spends executing. It never takes a task away.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.demand import Demand, DemandPolicy
from penstock.control.policy import Change, Decision, Hold, Inputs, Reason, Situation
from penstock.planning.plan_outcome import Alternative, PlanOutcome


@dataclass(frozen=True, slots=True)
class Threshold(DemandPolicy):
    above: float = 0.8
    name: str = field(default="threshold", init=False)

    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        capacity = _capacity(situation)
        known = [name for name in demand.loads if name in capacity]
        if len(known) < len(demand.loads):
            missing = ", ".join(name for name in demand.loads if name not in capacity)
            return Hold(reason=Reason.MISSING, why=f"not known yet: how busy {missing} is")
        inputs: Inputs = {f"{name}.capacity": capacity[name] for name in known}
        over = sorted((name for name in known if capacity[name] > self.above), key=lambda name: -capacity[name])
        if not over:
            busiest = max(known, key=lambda name: capacity[name])
            why = f"the busiest, '{busiest}', is at {capacity[busiest]:.0%}, not above {self.above:.0%}"
            return Hold(reason=Reason.WITHIN_TARGET, why=why, inputs=inputs, binding=busiest)
        # What cannot have another task stays what it is, and the next busiest gets its turn.
        rejected: list[Alternative] = []
        staying = PlanOutcome(slots=situation.slots)
        for name in over:
            count = situation.plan.replicas[name] + 1
            if demand.loads[name].most == 1:
                rejected.append(Alternative(replicas={name: count}, expected=staying, why=f"'{name}' has one replica"))
                continue
            plan = situation.topology.rescaled(situation.plan, {name: count})
            slots = situation.topology.slots(plan, micro_batch=situation.micro_batch)
            if slots > situation.max_slots:
                why = f"{slots} slots, and {situation.max_slots} may be used"
                rejected.append(Alternative(replicas={name: count}, expected=PlanOutcome(slots=slots), why=why))
                continue
            return Change(
                plan=plan,
                reason=Reason.CONGESTION,
                why=f"'{name}' is at {capacity[name]:.0%} of its capacity, above {self.above:.0%}",
                staying=staying,
                expected=PlanOutcome(slots=slots),
                inputs=inputs,
                binding=name,
                alternatives=tuple(rejected),
            )
        return Hold(
            reason=Reason.AT_LIMIT,
            why=f"{', '.join(over)} above {self.above:.0%}, and there is no slot for another task",
            inputs=inputs,
            binding=over[0],
            alternatives=tuple(rejected),
            needs_slots=situation.slots + 1,
        )


def _capacity(situation: Situation) -> dict[str, float]:
    """Latency x executed / window, by region: its operators take turns on its replicas.

    In micro-batches so do the stages of a query, each of which would never be seen busy for more than its turn.
    """
    assert situation.window is not None
    busy = {one.operator: one.utilisation for one in situation.window.operators}
    found = {}
    for region in situation.topology.regions:
        shares = [share for name in region.operators if (share := busy.get(name)) is not None]
        if shares:
            found[region.name] = sum(shares)
    if situation.micro_batch:
        for query in situation.topology.queries(situation.plan.cuts):
            turns = {name: found[name] for name in query if name in found}
            found |= {name: share / max(turns.values()) * sum(turns.values()) for name, share in turns.items() if share}
    return found
