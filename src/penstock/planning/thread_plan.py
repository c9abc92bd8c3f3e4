"""From an allocation of threads to a plan that Spark can run.

The paper gives each full bundle of threads a slot, and routes rows in proportion to the threads. Spark distributes
rows evenly over the tasks of a stage. An operator therefore gets as many replicas as it has bundles, and each replica
has the fewest threads that sustain its equal share of the rows. Stages of one query take turns, so a cut behind each
operator with a curve lets all of them work at the same time, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.models.curve import Curve, CurvePoint
from penstock.models.flow import Flow, FlowStream, gains
from penstock.models.queueing.errors import distinguishable
from penstock.plan import Plan, required_cuts, validated
from penstock.plan.cuts import forbidden_cuts
from penstock.planning.allocation import SLACK, SLOT, OperatorAllocation
from penstock.planning.thread_schedule import ThreadSchedule

_FREE = Curve(threads=(1,), points=(CurvePoint(rows_per_s=1e12, cpu=0.0, memory=0.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPlan:
    """A plan, the rate that it sustains according to the curves, and what it cannot express."""

    plan: Plan
    rows_per_s: float
    binding: str  # the operator that limits the rate
    notes: tuple[str, ...]

    def shortfall(self, rows_per_s: float) -> str | None:
        """Return why the plan does not sustain a rate of the sources, or None if it does."""
        if self.rows_per_s >= rows_per_s * (1.0 - SLACK):
            return None
        sustained, required = distinguishable(self.rows_per_s, rows_per_s)
        return f"the plan sustains {sustained} of the {required} rows/s, limited by '{self.binding}'"


def tasks_of(
    flow: Dataflow, curves: Mapping[str, Curve], selectivity: Mapping[str, float]
) -> tuple[Flow, dict[str, Curve]]:
    """Return the operators of a dataflow as tasks, and a curve for each of them.

    An operator without a curve costs nothing. One that is not declared with threads has the first point of its curve.

    Args:
        flow: The dataflow.
        curves: Measured curves by operator.
        selectivity: Measured rows out per row in by operator; otherwise the declared one counts, or 1.
    """
    names = tuple(operator.name for operator in flow.operators if operator.kind is not Kind.SOURCE)
    streams = []
    for operator in flow.operators:
        for before in operator.inputs:
            if before in operator.feedback:
                continue
            is_source = flow[before].kind is Kind.SOURCE
            declared = flow[before].selectivity
            gain = 1.0 if is_source else selectivity.get(before, 1.0 if declared is None else declared)
            streams.append(FlowStream(source=None if is_source else before, target=operator.name, selectivity=gain))
    own = {}
    for name in names:
        curve = curves.get(name, _FREE)
        if flow[name].calls is None and len(curve.threads) > 1:
            curve = Curve(threads=(1,), points=(curve.single,))
        own[name] = curve
    return Flow(operators=names, streams=tuple(streams)), own


def thread_plan(
    flow: Dataflow, schedule: ThreadSchedule, curves: Mapping[str, Curve], measured: Mapping[str, Curve]
) -> ThreadPlan:
    """Return the plan for a schedule of `tasks_of(flow, measured, ...)`, whose curves are `curves`.

    Raises:
        PlanError: The dataflow cannot run with these replicas, for example because of global state.
    """
    rate = {allocation.operator: allocation.input_rows_per_s for allocation in schedule.allocation.operators}
    slots_of = {allocation.operator: _slots(allocation) for allocation in schedule.allocation.operators}
    replicas: dict[str, int] = {}
    threads: dict[str, int] = {}
    notes = []
    for region in regions(flow):
        if region.kind is Kind.SOURCE:
            continue
        count = max(slots_of[name] for name in region.operators) if region.replicable else 1
        replicas[region.name] = count
        wanted = {name: slots_of[name] for name in region.operators if name in measured}
        if len(set(wanted.values())) > 1:
            text = ", ".join(f"{name} {slots}" for name, slots in wanted.items())
            notes.append(f"these operators are replicated together and get {count} replicas each, not {text}")
        for name in region.operators:
            if flow[name].calls is not None:
                share = min(rate[name] / count, curves[name].best.rows_per_s)
                threads[name] = curves[name].threads_for(share)
    cuts = set(required_cuts(flow, replicas))
    for name in measured.keys() & rate.keys():
        if not any(consumer.kind is Kind.SINK for consumer in flow.consumers(name)):
            cuts.add(name)
    plan = Plan(
        dataflow=flow.name,
        cuts=frozenset(cuts - forbidden_cuts(flow).keys()),
        replicas=replicas,
        threads=threads,
        slots=schedule.placement.cluster.slots,
    )
    plan = validated(flow, plan)
    missing = [name for name in rate if name not in measured and flow[name].fn is not None]
    if missing:
        notes.append(f"{', '.join(missing)}: no curve, so no slot is planned for the work")
    single = [name for name, curve in measured.items() if name in rate and curves[name] != curve]
    if single:
        notes.append(f"{', '.join(single)}: not declared with threads, so only the point of 1 thread is used")
    notes.append("Spark decides which slot runs a task, so the mapping to slots and VMs is not part of the plan")
    sustained = {
        name: _capacity(plan, flow, name, curves[name]) / gain
        for name, gain in gains(schedule.flow).items()
        if gain > 0 and name in measured
    }
    binding = min(sustained, key=lambda name: sustained[name], default="")
    return ThreadPlan(plan=plan, rows_per_s=sustained.get(binding, math.inf), binding=binding, notes=tuple(notes))


def _slots(allocation: OperatorAllocation) -> int:
    """Return the slots of an operator: one per bundle, or those that its CPU and memory fill."""
    if allocation.exclusive:
        return max(1, allocation.bundles + (allocation.rest is not None))
    return max(1, math.ceil((max(allocation.cpu, allocation.memory) - SLACK) / SLOT))


def _capacity(plan: Plan, flow: Dataflow, name: str, curve: Curve) -> float:
    region = next(region for region in regions(flow) if name in region.operators)
    return plan.replicas[region.name] * curve.at(plan.threads.get(name, 1)).rows_per_s
