"""Fission model: the pipelines and replicas with the highest predicted throughput, decided once.

Source: Gedik, Ozsema and Ozturk, JPDC 96, 2016, the model that Joker is compared with (JPDC 2020, section 5.5). The
model is `models/pipelined_fission.py`, the search is `planning/pipelined_fission.py`. On Spark every region gets a
query of its own, because every region has threads of its own in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from penstock.control.demand import demand_of
from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policy import Change, Decision, Hold, Memory, Policy, Reason, Situation
from penstock.control.region_configuration import RegionConfiguration, plan_with
from penstock.control.region_costs import fission_regions
from penstock.dataflow.operators import Kind
from penstock.models.fission_costs import FissionCosts
from penstock.models.pipelined_fission import FissionRegion
from penstock.plan.plan import Plan, diff
from penstock.planning.pipelined_fission import FissionPlan, best_plan
from penstock.planning.plan_outcome import PlanOutcome

_DECIDED, _BEFORE = "fission-model.decided", "fission-model.before"
_MOST_SLOTS = 1024  # when the slots for a demand are searched


def build(options: PolicyParameters) -> Policy:
    return FissionModel(options.fission_costs)


@dataclass(frozen=True, slots=True)
class FissionModel:
    costs: FissionCosts = field(default_factory=FissionCosts)
    name: str = field(default="fission-model", init=False)

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        if isinstance(demand, Hold):
            return demand, memory
        if _DECIDED in memory and _text(situation.plan) != memory.get(_BEFORE):
            reason = "The policy has decided once; the plan stays as it is."
            return Hold(reason_code=Reason.BEST, reason=reason, inputs=_inputs(situation, None)), memory
        regions = fission_regions(situation, demand)
        best = best_plan(regions, situation.max_slots, self.costs)
        short = best is None or best.rows_per_s < demand.external_per_s
        needs = _needed_slots(regions, demand.external_per_s, situation.max_slots, self.costs) if short else None
        if best is None:
            reason = f"The operators and required cuts need more than the {situation.max_slots} allowed slots."
            return Hold(reason_code=Reason.AT_LIMIT, reason=reason, needs_slots=needs), memory
        plan = _plan(situation, best)
        inputs = _inputs(situation, best)
        if plan == situation.plan:
            reason = f"The current plan has the highest predicted throughput, {best.rows_per_s:.4g} rows/s."
            code = Reason.AT_LIMIT if short else Reason.BEST
            decided = {**memory, _DECIDED: _text(plan), _BEFORE: ""}
            return Hold(reason_code=code, reason=reason, inputs=inputs, needs_slots=needs), decided
        if situation.topology.slots(plan, micro_batch=situation.micro_batch) > max(
            situation.max_slots, situation.topology.slots(situation.plan, micro_batch=situation.micro_batch)
        ):
            reason = f"The best plan needs more than the {situation.max_slots} allowed slots."
            return Hold(reason_code=Reason.AT_LIMIT, reason=reason, inputs=inputs, needs_slots=needs), memory
        change = Change(
            plan=plan,
            reason_code=Reason.REALLOCATION,
            reason=f"The model predicts {best.rows_per_s:.4g} rows/s with {best.threads} threads: "
            f"{diff(situation.plan, plan)}.",
            staying=PlanOutcome(slots=situation.slots),
            expected=PlanOutcome(
                slots=situation.topology.slots(plan, micro_batch=situation.micro_batch),
                rows_per_s=min(best.rows_per_s, demand.external_per_s),
            ),
            inputs=inputs,
            binding=max(best.choices, key=lambda name: best.choices[name].seconds),
            needs_slots=needs,
        )
        return change, {**memory, _DECIDED: _text(plan), _BEFORE: _text(situation.plan)}


def _plan(situation: Situation, best: FissionPlan) -> Plan:
    topology = situation.topology
    wanted = {
        region.name: RegionConfiguration(
            replicas=best.choices[region.name].replicas,
            cuts=tuple(sorted(region.operators[cut - 1] for cut in best.choices[region.name].cuts)),
        )
        for region in topology.regions
    }
    plan = plan_with(topology, situation.plan, wanted, micro_batch=False)
    if not situation.micro_batch:
        return plan
    between = {
        region.operators[-1]
        for region in topology.regions
        if topology.operators[region.operators[-1]].kind is not Kind.SINK
    }
    return plan.replace(cuts=plan.cuts | between - topology.forbidden_cuts)


def _needed_slots(regions: list[FissionRegion], rows_per_s: float, slots: int, costs: FissionCosts) -> int | None:
    """Return the slots with which the predicted throughput reaches the demand; None if no number suffices."""
    most = slots
    while most < _MOST_SLOTS:
        most *= 2
        plan = best_plan(regions, most, costs)
        if plan is not None and plan.rows_per_s >= rows_per_s:
            return next((n for n in range(slots + 1, most) if _reaches(best_plan(regions, n, costs), rows_per_s)), most)
    return None


def _reaches(plan: FissionPlan | None, rows_per_s: float) -> bool:
    return plan is not None and plan.rows_per_s >= rows_per_s


def _inputs(situation: Situation, best: FissionPlan | None) -> dict[str, float | None]:
    assert situation.window is not None
    predicted = None if best is None or math.isinf(best.rows_per_s) else best.rows_per_s
    return {"external_rows_per_s": situation.window.external_rows_per_s, "predicted_rows_per_s": predicted}


def _text(plan: Plan) -> str:
    """Return the cuts and replicas of a plan, without its slots."""
    return msgspec.json.encode([sorted(plan.cuts), sorted(plan.replicas.items())]).decode()
