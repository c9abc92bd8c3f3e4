"""DS2: compute the replicas of all operators in one step from their true processing rates.

Source: Kalavri et al., "Three steps is all you need", OSDI 2018, section 3. The true rate of an operator is rows over
busy time. Together with the selectivities, the rates of the sources determine the rate that each operator must process:

    replicas_i = ceil( rows/s that must enter i  /  true rate of one replica of i )

DS2 knows throughput only: no latency target and no budget. If it needs more slots than are allowed, it holds. The last
few replicas are released only if the remaining ones have spare capacity; otherwise measurement noise would add and
remove a replica in turn. The spare capacity grows with the noise of the work in the window, and the release waits until
it was possible for `stable_s`.

The true rate of a micro-batch query leaves out the fixed time A of its batches. A batch settles at A / (1 - rho), which
is longest for the fewest replicas with rho < 1, so replicas are planned for rho of at most 0.9: batches of 10 A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.control.demand import Demand, RegionLoad, demand_of
from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policy import Change, Decision, Hold, Memory, Policy, Reason, Situation
from penstock.plan.counts import slots_text
from penstock.planning.plan_outcome import Alternative, PlanOutcome

_ROUNDING = 1e-9  # 3.0000000000000004 replicas' worth of rows are 3, not 4
_FEW = 0.2  # share of the replicas up to which a release may be noise; at least one replica
_SPARE = 0.05  # spare capacity that remaining replicas need before a few are released
_DEVIATIONS = 2.5  # the same in standard deviations of the measured work
_MOST_SPARE = 0.3
_LOW_SINCE, _LOW_MOST = "ds2.low_since.", "ds2.low_most."  # by region: a release is possible since, and to how many
_BUSY = 0.9  # share of the time of a micro-batch query in which it works on rows, at most


def build(options: PolicyParameters) -> Policy:
    return Ds2()


@dataclass(frozen=True, slots=True)
class Ds2:
    target_ratio: float = 1.0  # planned input rate / measured input rate
    stable_s: float = 300.0  # time for which fewer replicas must have sufficed before a few are released
    name: str = field(default="ds2", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        wanted = self._wanted_replicas(demand, situation)
        if situation.changes:  # the first plan is reached in one step
            wanted, memory = self._with_releases(wanted, demand, situation.now_s, memory)
        return self._decide_for(demand, situation, wanted), memory

    def _with_releases(
        self, wanted: dict[str, int], demand: Demand, now_s: float, memory: Memory
    ) -> tuple[dict[str, int], Memory]:
        """Delay the release of a few replicas until no turn of `stable_s` has required more of them.

        A constant load would otherwise release a replica at a low value of its noise, and add it at the next high one.
        """
        updated = dict(memory)
        for name, load in demand.loads.items():
            since, most = f"{_LOW_SINCE}{name}", f"{_LOW_MOST}{name}"
            released = load.replicas - wanted[name]
            if not 0 < released <= max(1.0, _FEW * load.replicas):
                updated.pop(since, None)
                updated.pop(most, None)
                continue
            began_s = updated.setdefault(since, now_s)
            updated[most] = max(updated.get(most, 0.0), float(wanted[name]))
            if now_s - began_s < self.stable_s:
                wanted = {**wanted, name: load.replicas}
            else:
                wanted = {**wanted, name: int(updated[most])}
        return wanted, updated

    def _decide_for(self, demand: Demand, situation: Situation, wanted: dict[str, int]) -> Decision:
        assert situation.window is not None
        inputs = demand.inputs(situation.window)
        limiting = next((name for name, load in demand.loads.items() if load.max_replicas == 1 < wanted[name]), None)
        counts = {name: 1 if demand.loads[name].max_replicas == 1 else count for name, count in wanted.items()}
        plan = situation.topology.rescaled(situation.plan, counts | _idle_replicas(demand, situation))
        slots = situation.topology.slots(plan, micro_batch=situation.micro_batch)
        limit = "" if limiting is None else f"; '{limiting}' needs {wanted[limiting]} replicas but can have only one"
        if plan == situation.plan:
            reason_code = Reason.BEST if limiting is None else Reason.AT_LIMIT
            reason = f"The current replicas match the true processing rates{limit}."
            return Hold(reason_code=reason_code, reason=reason, inputs=inputs, binding=limiting)
        expected = PlanOutcome(slots=slots, rows_per_s=_sustained_per_s(situation, demand, counts))
        if slots > max(situation.max_slots, situation.slots):
            reason = (
                f"The true processing rates require {slots_text(slots)}, but only {situation.max_slots} are allowed."
            )
            return Hold(
                reason_code=Reason.AT_LIMIT,
                reason=reason,
                inputs=inputs,
                binding=limiting,
                alternatives=(Alternative(replicas=counts, expected=expected, reason=reason),),
                needs_slots=slots,
            )
        all_counts = plan.replicas
        present = {name: load.replicas for name, load in demand.loads.items()}
        changed = ", ".join(
            f"'{name}' {count} -> {all_counts[name]} replicas"
            for name, count in situation.plan.replicas.items()
            if all_counts[name] != count
        )
        return Change(
            plan=plan,
            reason_code=Reason.TRUE_RATES,
            reason=f"At {demand.external_per_s:.4g} rows/s the true processing rates require {changed}{limit}.",
            staying=PlanOutcome(slots=situation.slots, rows_per_s=_sustained_per_s(situation, demand, present)),
            expected=expected,
            inputs=inputs,
            binding=limiting,
        )

    def _wanted_replicas(self, demand: Demand, situation: Situation) -> dict[str, int]:
        """Return the replicas that the true rates require, also of regions that can have only one."""
        assert situation.window is not None
        work = {name: load.work for name, load in demand.loads.items()}
        if situation.micro_batch:  # the stages of a query take turns: each has only its part of the time
            for query in situation.topology.queries(situation.plan.cuts):
                stages = [name for name in query if name in work]
                work |= dict.fromkeys(stages, sum(demand.loads[name].work for name in stages) / _BUSY)
        span_s = situation.window.end_s - situation.window.start_s
        return {
            name: _replicas(work[name] * self.target_ratio, load.replicas, _spare(load, span_s))
            for name, load in demand.loads.items()
        }


def _idle_replicas(demand: Demand, situation: Situation) -> dict[str, int]:
    """Return one replica for each region without work. In a query with others it shares their count instead."""
    working: set[str] = set()
    if situation.micro_batch:
        for query in situation.topology.queries(situation.plan.cuts):
            if demand.loads.keys() & set(query):
                working |= set(query)
    return {name: 1 for name in demand.idle if name not in working}


def _spare(load: RegionLoad, span_s: float) -> float:
    """Return the spare capacity that exceeds the noise of the measured work: a sum over a random number of rows."""
    rows = max(1.0, load.arrival_per_s * span_s)
    noise = math.sqrt((1.0 + (load.service_scv or 0.0)) / rows)
    return min(_MOST_SPARE, max(_SPARE, _DEVIATIONS * noise))


def _replicas(work: float, present: int, spare: float = _SPARE) -> int:
    """Return the replicas for an amount of work, with spare capacity if only a few would be released.

    >>> [_replicas(work, 5) for work in (5.01, 4.0, 3.9, 3.8, 3.0)]
    [6, 5, 5, 4, 3]
    >>> [_replicas(work, 11) for work in (11.1, 9.6, 9.0, 8.0)]
    [12, 11, 10, 8]
    """
    fewest = max(1, math.ceil(work - _ROUNDING))
    if present - fewest <= max(1.0, _FEW * present):
        return max(fewest, min(present, math.ceil(work * (1.0 + spare) - _ROUNDING)))
    return fewest


def _sustained_per_s(situation: Situation, demand: Demand, counts: dict[str, int]) -> float:
    """Return the external rows/s that these replicas sustain, at most those that arrive."""
    busy = {name: load.work / counts[name] for name, load in demand.loads.items()}
    if situation.micro_batch:
        queries = situation.topology.queries(situation.plan.cuts)
        highest = max(sum(busy.get(name, 0.0) for name in query) for query in queries)
    else:
        highest = max(busy.values())
    return demand.external_per_s / max(1.0, highest)
