"""The plan for Spark that follows from a mapping of threads.

Each slot on which the mapping places threads of an operator becomes a replica with these threads. Replicas receive rows
in proportion to what their threads sustain, so that all of them reach their limit at the same rate. If routing is even,
each replica has the fewest threads that sustain its equal share.

Spark knows executors for an operator and not slots. An operator with a slot that no other one uses gets a group of
executors with a slot for each of its replicas. All other operators share the executors outside of groups, as their
threads share slots in the mapping. Stages of one query take turns, so a cut behind each operator with a curve lets all
of them work at the same time, as in the paper.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.models.curve import Curve, CurvePoint
from penstock.models.flow import Flow, FlowStream, gains
from penstock.models.queueing.errors import distinguishable
from penstock.plan import ExecutorGroup, Plan, Routing, Threads, pipelines, required_cuts, validated
from penstock.plan.counts import thread_text
from penstock.plan.cuts import forbidden_cuts
from penstock.planning.allocation import SLACK
from penstock.planning.batch_latency import mean_latency_s
from penstock.planning.placement_prediction import ResourceUse
from penstock.planning.thread_schedule import ThreadSchedule

_FREE = Curve(threads=(1,), points=(CurvePoint(rows_per_s=1e12, cpu=0.0, memory=0.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPlan:
    """A plan, the rate that it sustains according to the curves, and what it cannot express."""

    plan: Plan
    rows_per_s: float
    binding: str  # the operator that limits the rate
    replicas: Mapping[str, int]  # by operator
    notes: tuple[str, ...]

    def use(self, curves: Mapping[str, Curve], flow: Flow, rows_per_s: float) -> dict[str, ResourceUse]:
        """Return the predicted CPU% and memory% of each slot, by group; "" is the group of all other executors.

        A replica uses CPU and memory in proportion to its rate, up to the point of its threads on the curve. It gets
        its share of the rows, or the peak rate of its threads if that is less.
        """
        plan, groups = self.plan, {**{name: group.slots for name, group in self.plan.groups.items()}, "": 0}
        groups[""] = plan.slots - plan.group_slots
        cpu, memory = dict.fromkeys(groups, 0.0), dict.fromkeys(groups, 0.0)
        for name, gain in gains(flow).items():
            group, replicas = plan.group_of.get(name, ""), self.replicas[name]
            shares = plan.shares([name]) or (1.0 / replicas,) * replicas
            for threads, share in zip(plan.bundles(name, replicas), shares, strict=True):
                point = curves[name].at(threads)
                load = min(1.0, rows_per_s * gain * share / point.rows_per_s)
                cpu[group] += load * point.cpu
                memory[group] += load * point.memory
        return {
            name: ResourceUse(cpu=cpu[name] / slots, memory=memory[name] / slots)
            for name, slots in groups.items()
            if slots
        }

    def latency_s(
        self, flow: Dataflow, tasks: Flow, curves: Mapping[str, Curve], rows_per_s: float, *, fixed_s: float
    ) -> float | None:
        """Return the mean latency in micro-batches at a rate; None if the plan does not sustain it.

        `curves` are those of operators that take time. `fixed_s` is the time of a batch that does not depend on rows.
        """
        gain_of = gains(tasks)
        work = {
            name: (
                rows_per_s * gain_of[name] / _capacity(self.plan, name, self.replicas[name], curve),
                max(count / curve.at(count).rows_per_s for count in self.plan.bundles(name, self.replicas[name])),
            )
            for name, curve in curves.items()
        }
        return mean_latency_s(self.plan, flow, tasks, work, fixed_s=fixed_s, gain_of=gain_of)

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
    flow: Dataflow,
    schedule: ThreadSchedule,
    curves: Mapping[str, Curve],
    measured: Mapping[str, Curve],
    *,
    routing: Routing = "capacity",
    groups: bool = False,
) -> ThreadPlan:
    """Return the plan for a schedule of `tasks_of(flow, measured, ...)`, whose curves are `curves`.

    `groups`: give operators with slots of their own a group of executors.

    Raises:
        PlanError: The dataflow cannot run with these replicas, for example because of global state.
    """
    rate = {allocation.operator: allocation.input_rows_per_s for allocation in schedule.allocation.operators}
    slots_of = _slots_by_operator(schedule, measured)
    replicas: dict[str, int] = {}
    threads: dict[str, Threads] = {}
    notes = []
    for region in regions(flow):
        if region.kind is Kind.SOURCE:
            continue
        wanted = {name: len(slots_of[name]) for name in region.operators if name in slots_of}
        count = max([1, *wanted.values()]) if region.replicable else 1
        replicas[region.name] = count
        if len(set(wanted.values())) > 1:
            text = ", ".join(f"{name} {slots}" for name, slots in wanted.items())
            notes.append(f"operators that are replicated together get {count} replicas each instead of {text}")
        for name in region.operators:
            if flow[name].calls is None:
                continue
            bundles = tuple(slots_of.get(name, {}).values())
            if len(bundles) == count and routing == "capacity":
                threads[name] = bundles
            else:
                share = min(rate[name] / count, curves[name].best.rows_per_s)
                threads[name] = curves[name].threads_for(share)
    rates = {
        name: tuple(curves[name].at(number).rows_per_s for number in own)
        for name, own in threads.items()
        if isinstance(own, tuple) and len(set(own)) > 1
    }
    cuts = set(required_cuts(flow, replicas))
    for name in measured.keys() & rate.keys():
        if not any(consumer.kind is Kind.SINK for consumer in flow.consumers(name)):
            cuts.add(name)
    replicas_of = {name: replicas[region.name] for region in regions(flow) for name in region.operators if name in rate}
    own_slots = {name: replicas_of[name] for name in _exclusive(slots_of)}
    shared_slots = {slot for name, slots in slots_of.items() if name not in own_slots for slot in slots}
    plan = Plan(
        dataflow=flow.name,
        cuts=frozenset(cuts - forbidden_cuts(flow).keys()),
        replicas=replicas,
        threads=threads,
        slots=max(1, sum(own_slots.values()) + max(len(shared_slots), int(groups))),  # 1 for Spark's own tasks
        groups={name: ExecutorGroup(operators=(name,), slots=own) for name, own in own_slots.items()} if groups else {},
        rates=rates,
        routing=routing,
    )
    plan = validated(flow, plan)
    missing = [name for name in rate if name not in measured and flow[name].fn is not None]
    if missing:
        notes.append(f"{', '.join(missing)}: no curve, so no slot is planned for the work")
    single = [name for name, curve in measured.items() if name in rate and curves[name] != curve]
    if single:
        notes.append(f"{', '.join(single)}: not declared with threads, so only the point of 1 thread is used")
    notes += _not_expressed(schedule, slots_of, own_slots)
    rows_per_s, binding = sustained_by(
        plan, flow, schedule.flow, {name: curves[name] for name in measured if name in rate}
    )
    return ThreadPlan(
        plan=plan,
        rows_per_s=rows_per_s,
        binding=binding,
        replicas=replicas_of,
        notes=tuple(notes),
    )


def sustained_by(plan: Plan, flow: Dataflow, tasks: Flow, curves: Mapping[str, Curve]) -> tuple[float, str]:
    """Return the rate that a plan sustains according to the curves, and the operator that limits it.

    Operators of one query take turns: the seconds per row of the sources add up.
    """
    region_of = {name: region.name for region in regions(flow) for name in region.operators}
    gain_of = gains(tasks)
    lowest, binding = math.inf, ""
    for pipeline in pipelines(flow, plan):
        seconds = {
            name: gain_of[name] / _capacity(plan, name, plan.replicas[region_of[name]], curves[name])
            for name in pipeline.operators
            if name in curves
        }
        total = math.fsum(seconds.values())
        if total > 0 and 1.0 / total < lowest:
            lowest, binding = 1.0 / total, max(seconds, key=lambda name: seconds[name])
    return lowest, binding


def _slots_by_operator(schedule: ThreadSchedule, measured: Mapping[str, Curve]) -> dict[str, dict[int, int]]:
    """Return the threads of each operator with a curve on each of its slots, slots with most threads first."""
    return {
        name: dict(sorted(own.items(), key=lambda item: (-item[1], item[0])))
        for name, own in schedule.placement.groups().items()
        if name in measured
    }


def _exclusive(slots_of: Mapping[str, Mapping[int, int]]) -> list[str]:
    """Return the operators with a slot that no other operator uses, if another operator shares slots."""
    users = Counter(slot for slots in slots_of.values() for slot in slots)
    return [name for name, slots in slots_of.items() if any(users[slot] == 1 for slot in slots)]


def _not_expressed(
    schedule: ThreadSchedule, slots_of: Mapping[str, Mapping[int, int]], own_slots: Mapping[str, int]
) -> list[str]:
    """Return what Spark does differently from the mapping."""
    cluster = schedule.placement.cluster
    users: dict[int, list[str]] = {}
    for name, slots in slots_of.items():
        for slot in slots:
            users.setdefault(slot, []).append(name)
    notes = []
    for name in own_slots:
        for slot, count in slots_of[name].items():
            others = [other for other in users[slot] if other != name]
            if others:
                notes.append(
                    f"{thread_text(count)} of {name} share slot {cluster.slot_name(slot)} with "
                    f"{', '.join(others)} in the mapping; on Spark all replicas of {name} have slots of their own"
                )
    together = [name for name in slots_of if name not in own_slots]
    common = {slot for name in together for slot in slots_of[name]}
    if len(common) > 1 and len(together) > 1:
        notes.append(
            f"{', '.join(together)} use {len(common)} slots together on Spark, which decides for each task which of "
            "them it gets; the mapping assigns each thread to one of them"
        )
    if any(vm.size.slots > 1 for vm in cluster.vms) and len(cluster.vms) > 1:
        notes.append("Spark decides which VM runs the executors of a group")
    return notes


def _capacity(plan: Plan, name: str, replicas: int, curve: Curve) -> float:
    """Return the rows/s at which the first replica reaches the peak of its curve."""
    shares = plan.shares([name]) or (1.0 / replicas,) * replicas
    peaks = [curve.at(threads).rows_per_s for threads in plan.bundles(name, replicas)]
    return min(peak / share for peak, share in zip(peaks, shares, strict=True))
