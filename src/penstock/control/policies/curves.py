"""Model-driven reallocation: one step to the plan that performance curves give for the expected rate.

Source: Shukla and Simmhan, JPDC 2018. The paper plans once, for a fixed rate, and names replanning as the use of its
models under changing rates. Here MBA allocates threads for the forecast rate and SAM maps them. The range of a plan
ends above at the rate that it sustains by the curves. It ends below where a plan with fewer slots sustains the rate
with a margin, so that a rate between two plans does not change the plan back and forth.

Operators without a curve keep their replicas and threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.demand import Demand, DemandPolicy
from penstock.control.forecast import forecast
from penstock.control.policies.catalogue import PolicyParameters
from penstock.control.policy import Change, Decision, Hold, Policy, Reason, Situation
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operators import Kind
from penstock.models.curve import Curve
from penstock.plan import Plan
from penstock.plan.counts import slots_text
from penstock.planning.plan_outcome import Alternative, PlanOutcome
from penstock.planning.thread_plan import sustained_by, tasks_of, thread_plan
from penstock.planning.thread_schedule import schedule_threads

_LEAD_S = 60.0  # a reallocation takes effect within this time
_SPARE = 0.1  # capacity of a new plan above the expected rate
_RELEASE_SPARE = 0.3  # the same for a plan with fewer slots


def build(options: PolicyParameters) -> Policy:
    if options.curves is None:
        raise PenstockError("Policy 'curves' requires performance curves; give the directory of their study.")
    return Curves(curves=options.curves)


@dataclass(frozen=True, slots=True)
class Curves(DemandPolicy):
    curves: Mapping[str, Curve]  # by operator
    name: str = field(default="curves", init=False)

    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        assert situation.window is not None
        expected_per_s = demand.external_per_s
        if situation.recorded:
            expected_per_s = max(1e-9, forecast(situation.recorded, lead_s=_LEAD_S).level_per_s)
        topology, plan = situation.topology, situation.plan
        measured = {name: curve for name, curve in self.curves.items() if name in topology.flow}
        selectivity = {
            operator.operator: operator.selectivity
            for operator in situation.window.operators
            if operator.selectivity is not None
        }
        tasks, used = tasks_of(topology.flow, measured, selectivity)
        own = {name: used[name] for name in measured}
        present_per_s, binding = sustained_by(plan, topology.flow, tasks, own)
        inputs = demand.inputs(situation.window) | {
            "expected_rows_per_s": expected_per_s,
            "sustained_rows_per_s": present_per_s,
        }

        def planned(rows_per_s: float) -> tuple[Plan, float, str, int]:
            schedule = schedule_threads(tasks, rows_per_s, used)
            mapped = thread_plan(topology.flow, schedule, used, measured, routing=plan.routing)
            wanted = self._with_others(situation, mapped.plan)
            slots = topology.slots(wanted, micro_batch=situation.micro_batch)
            return wanted, *sustained_by(wanted, topology.flow, tasks, own), slots

        is_short = expected_per_s > present_per_s
        wanted, wanted_per_s, limiting, slots = planned(
            expected_per_s * (1.0 + (_SPARE if is_short else _RELEASE_SPARE))
        )
        staying = PlanOutcome(slots=situation.slots, rows_per_s=min(expected_per_s, present_per_s))
        expected = PlanOutcome(slots=slots, rows_per_s=min(expected_per_s, wanted_per_s))
        numbers = f"The plan sustains {present_per_s:.4g} rows/s by the curves, and {expected_per_s:.4g} are expected"
        if not is_short and slots >= situation.slots:
            return Hold(reason_code=Reason.WITHIN_TARGET, reason=f"{numbers}.", inputs=inputs, binding=binding)
        if slots > max(situation.max_slots, situation.slots):
            reason = f"{numbers}; more needs {slots_text(slots)}, but only {situation.max_slots} are allowed."
            return Hold(
                reason_code=Reason.AT_LIMIT,
                reason=reason,
                inputs=inputs,
                binding=binding,
                alternatives=(Alternative(replicas=wanted.replicas, expected=expected, reason=reason),),
                needs_slots=slots,
            )
        if wanted == plan or (is_short and wanted_per_s <= present_per_s):
            reason = f"{numbers}; no plan sustains more, because operator '{limiting}' is at its limit."
            return Hold(reason_code=Reason.BEST, reason=reason, inputs=inputs, binding=limiting)
        return Change(
            plan=wanted,
            reason_code=Reason.SHORTAGE if is_short else Reason.RELEASE,
            reason=f"{numbers}; a plan with {slots_text(slots)} sustains {wanted_per_s:.4g}.",
            staying=staying,
            expected=expected,
            inputs=inputs,
            binding=binding,
        )

    def _with_others(self, situation: Situation, wanted: Plan) -> Plan:
        """Return the wanted plan with slots, groups, and operators without a curve, as they are."""
        topology, plan = situation.topology, situation.plan
        kept = {
            region.name: plan.replicas[region.name]
            for region in topology.regions
            if not any(name in self.curves for name in region.operators) or region.kind is Kind.SINK
        }
        threads = wanted.threads | {name: own for name, own in plan.threads.items() if name not in self.curves}
        return topology.successor(
            plan,
            plan.replace(
                replicas=wanted.replicas | kept,
                threads=threads,
                rates=wanted.rates,
                cuts=(plan.cuts | wanted.cuts) - topology.forbidden_cuts,
            ),
        )
