"""DS2: from true rates to the parallelism of all operators in one step.

Source: Kalavri et al., "Three steps is all you need", OSDI 2018, section 3. With true processing rate (rows over busy
time) and selectivity of each operator, the rate that each has to take in follows from the rates of the sources, and

    parallelism_i = ceil( rows/s that must enter i  /  true rate of one replica of i )

It knows throughput only: no latency target, no budget. Where it needs more slots than there are it holds and says so.
The last few replicas are released only where those that stay have some room: with as much work as an integer of them
does, measured rates would call for one or two more and less in turns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.control.demand import Demand, DemandPolicy
from penstock.control.policy import Change, Decision, Hold, Reason, Situation
from penstock.planning.plan_outcome import Alternative, PlanOutcome

_ROUNDING = 1e-9  # 3 replicas' worth of rows that came out as 3.0000000000000004 is not 4
_FEW = 0.2  # of the replicas, or one: to let more than these go is no matter of noise
_ROOM = 0.05  # of the work, that those which stay must be able to do beside it when a few are let go


@dataclass(frozen=True, slots=True)
class Ds2(DemandPolicy):
    target_ratio: float = 1.0  # rows to be able to take in, over those that arrive
    name: str = field(default="ds2", init=False)

    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        assert situation.window is not None
        inputs = demand.inputs(situation.window)
        work = {name: load.work for name, load in demand.loads.items()}
        if situation.micro_batch:  # stages of a query take turns: each has to be done in its part of the time
            for query in situation.topology.queries(situation.plan.cuts):
                inside = [name for name in query if name in work]
                work |= dict.fromkeys(inside, sum(demand.loads[name].work for name in inside))
        present = {name: load.replicas for name, load in demand.loads.items()}
        wanted = {name: _replicas(one * self.target_ratio, present[name]) for name, one in work.items()}
        stuck = next((name for name, load in demand.loads.items() if load.most == 1 < wanted[name]), None)
        counts = {name: 1 if demand.loads[name].most == 1 else count for name, count in wanted.items()}
        # What has no work needs one; in a query with others it has their number, and takes turns with them.
        others = {} if situation.micro_batch else dict.fromkeys(demand.idle, 1)
        plan = situation.topology.rescaled(situation.plan, counts | others)
        slots = situation.topology.slots(plan, micro_batch=situation.micro_batch)
        limited = "" if stuck is None else f"; '{stuck}' has one replica and needs {wanted[stuck]}"
        if plan == situation.plan:
            held = Reason.BEST if stuck is None else Reason.AT_LIMIT
            return Hold(reason=held, why=f"the true rates call for this plan{limited}", inputs=inputs, binding=stuck)
        expected = PlanOutcome(slots=slots, rows_per_s=_taken_in(situation, demand, counts))
        if slots > max(situation.max_slots, situation.slots):
            why = f"the true rates call for {slots} slots, and {situation.max_slots} may be used"
            rejected = (Alternative(replicas=counts, expected=expected, why=why),)
            return Hold(
                reason=Reason.AT_LIMIT, why=why, inputs=inputs, binding=stuck, alternatives=rejected, needs_slots=slots
            )
        changed = ", ".join(f"{name} {present[name]} -> {k}" for name, k in counts.items() if k != present[name])
        return Change(
            plan=plan,
            reason=Reason.TRUE_RATES,
            why=f"the true rates call for {changed}{limited}",
            staying=PlanOutcome(slots=situation.slots, rows_per_s=_taken_in(situation, demand, present)),
            expected=expected,
            inputs=inputs,
            binding=stuck,
        )


def _replicas(work: float, present: int) -> int:
    """
    >>> [_replicas(work, 5) for work in (5.01, 4.0, 3.9, 3.8, 3.0)]
    [6, 5, 5, 4, 3]
    >>> [_replicas(work, 11) for work in (11.1, 9.6, 9.0, 8.0)]
    [12, 11, 10, 8]
    """
    fewest = max(1, math.ceil(work - _ROUNDING))
    if present - fewest <= max(1.0, _FEW * present):
        return max(fewest, min(present, math.ceil(work * (1.0 + _ROOM) - _ROUNDING)))
    return fewest


def _taken_in(situation: Situation, demand: Demand, counts: dict[str, int]) -> float:
    """External rows/s that these counts sustain, of those that arrive."""
    busy = {name: load.work / counts[name] for name, load in demand.loads.items()}
    if situation.micro_batch:
        queries = situation.topology.queries(situation.plan.cuts)
        slowest = max(sum(busy.get(name, 0.0) for name in query) for query in queries)
    else:
        slowest = max(busy.values())
    return demand.external_per_s / max(1.0, slowest)
