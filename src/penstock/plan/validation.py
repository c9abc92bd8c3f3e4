"""Check a plan against a dataflow, and attribute replica counts to the operators that are replicated together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from penstock.dataflow.concurrent_calls import check_threads
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PlanError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region, regions
from penstock.plan.cuts import forbidden_cuts, required_cuts
from penstock.plan.plan import ExecutorGroup, Plan, Threads

_GROUP_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
MAX_REPLICAS = 10_000  # per operator: a typing error must not keep a run busy for hours


def validated(flow: Dataflow, plan: Plan) -> Plan:
    """Return the plan with each replica count under the first of the operators that are replicated together.

    A plan may name any of these operators, or several of them with the same count. An operator with threads that the
    plan does not name gets the number of its declaration.

    Args:
        flow: The dataflow that the plan is for.
        plan: A plan as a user wrote it, or one that was validated before.

    Raises:
        PlanError: The plan does not fit the dataflow. The message says what would fit.
        DataflowError: The dataflow is incomplete.
    """
    flow.check()
    if plan.dataflow != flow.name:
        raise PlanError(
            f"The plan is for dataflow '{plan.dataflow}', but the dataflow is '{flow.name}'; set \"dataflow\" in the "
            "plan, or give the plan of this dataflow."
        )
    check_count("slots", plan.slots)
    _check_cuts(flow, plan)
    groups = _checked_groups(flow, plan)
    replicas = counts_by_first_operator(flow, plan.replicas)
    for region in _replicated(flow):
        if region.name not in replicas:
            raise PlanError(
                f'The plan gives no number of replicas for {_operators(region)}; add "{region.name}": 1 or more to '
                '"replicas".'
            )
    for name, reason in required_cuts(flow, replicas).items():
        if name not in plan.cuts:
            raise PlanError(f'The plan must cut after \'{name}\' ({reason}); add "{name}" to "cuts".')
    in_order = {region.name: replicas[region.name] for region in _replicated(flow)}
    by_operator = {name: in_order[region.name] for region in _replicated(flow) for name in region.operators}
    return plan.replace(
        replicas=in_order,
        threads=_threads_by_operator(flow, plan.threads, by_operator),
        groups=groups,
        rates=_rates_by_operator(flow, plan.rates, by_operator),
    )


def counts_by_first_operator(flow: Dataflow, replicas: Mapping[str, int]) -> dict[str, int]:
    """Return the counts under the first operator of each group that is replicated together.

    Raises:
        PlanError: A name is unknown or a source, a count is out of range, or two operators of one group disagree.
    """
    region_by_operator = {name: region for region in regions(flow) for name in region.operators}
    named: dict[str, str] = {}  # first operator of a group -> the operator that was named
    counts: dict[str, int] = {}
    for name, count in replicas.items():
        region = region_by_operator.get(name)
        if region is None:
            raise PlanError(
                f"Replicas are given for '{name}', which is not an operator of dataflow '{flow.name}'; its operators "
                f"are {_names(operator.name for operator in flow.operators)}."
            )
        if region.kind is Kind.SOURCE:
            raise PlanError(
                f"Replicas are given for source '{name}', which has no replicas of its own; its rows are "
                "read by the replicas of its consumers. Give replicas for one of the consumers."
            )
        _check_replicas(name, count, region)
        if counts.get(region.name, count) != count:
            raise PlanError(
                f"Operators '{named[region.name]}' and '{name}' are replicated together, but {counts[region.name]} "
                f"and {count} replicas are given; give both the same number, or name only one of them."
            )
        named[region.name] = name
        counts[region.name] = count
    return counts


def with_remaining_threads(flow: Dataflow, plan: Plan) -> Plan:
    """Return the plan without threads of operators that are not declared with threads any more."""
    remaining = {operator.name for operator in flow.operators if operator.calls is not None}
    return plan.replace(threads={name: count for name, count in plan.threads.items() if name in remaining})


def _threads_by_operator(
    flow: Dataflow, threads: Mapping[str, Threads], replicas: Mapping[str, int]
) -> dict[str, Threads]:
    """Return the threads of all operators with threads. A list of equal numbers becomes one number."""
    declared = {operator.name: operator.calls.threads for operator in flow.operators if operator.calls is not None}
    checked: dict[str, Threads] = dict(declared)
    for name, count in threads.items():
        if name not in declared:
            raise PlanError(
                f"Threads are given for '{name}', which is not an operator with threads in dataflow '{flow.name}'; its "
                f"operators with threads are {_names(declared) or 'none'}. Declare it with rows(..., threads=...)."
            )
        own = (count,) if isinstance(count, int) else tuple(count)
        for number in own:
            check_threads(name, number, PlanError)
        if not isinstance(count, int) and len(own) != replicas[name]:
            raise PlanError(
                f"{len(own)} numbers of threads are given for '{name}', which has {replicas[name]} replicas; give one "
                "number for all replicas, or one for each."
            )
        checked[name] = own[0] if len(set(own)) == 1 else own
    return checked


def _rates_by_operator(
    flow: Dataflow, rates: Mapping[str, tuple[float, ...]], replicas: Mapping[str, int]
) -> dict[str, tuple[float, ...]]:
    """Return the checked rates in the order of the dataflow."""
    for name, own in rates.items():
        if name not in replicas:
            raise PlanError(
                f"Rates are given for '{name}', which is not an operator with replicas in dataflow '{flow.name}'; its "
                f"operators with replicas are {_names(replicas)}."
            )
        if len(own) != replicas[name]:
            raise PlanError(
                f"{len(own)} rates are given for '{name}', which has {replicas[name]} replicas; give one for each."
            )
        for rate in own:
            if not (math.isfinite(rate) and rate > 0):
                raise PlanError(f"A rate of '{name}' is {rate:g}; it must be a finite number of rows/s above 0.")
    return {name: tuple(rates[name]) for name in replicas if name in rates}


def _checked_groups(flow: Dataflow, plan: Plan) -> dict[str, ExecutorGroup]:
    """Return the groups by name, each with its operators in the order of the dataflow."""
    order = [operator.name for operator in flow.operators]
    group_of: dict[str, str] = {}
    for name, group in plan.groups.items():
        if not _GROUP_NAME.fullmatch(name):
            raise PlanError(f"'{name}' is not a name of a group; use 1 to 60 letters, digits, '_' and '-'.")
        check_count(f"slots of group '{name}'", group.slots)
        if not group.operators:
            raise PlanError(f"Group '{name}' has no operators; name one or more, or remove the group.")
        for operator in group.operators:
            if operator not in flow:
                raise PlanError(
                    f"Group '{name}' contains '{operator}', which is not an operator of dataflow '{flow.name}'; its "
                    f"operators are {_names(order)}."
                )
            if operator in group_of:
                raise PlanError(
                    f"Operator '{operator}' is in the groups '{group_of[operator]}' and '{name}'; name it once."
                )
            group_of[operator] = name
    if plan.groups and plan.slots <= plan.group_slots:
        raise PlanError(
            f"The plan has {plan.slots} slots, and its groups have {plan.group_slots}; at least 1 more is needed for "
            f'Spark\'s own tasks and the operators without a group. Set "slots": {plan.group_slots + 1} or more.'
        )
    return {
        name: ExecutorGroup(operators=tuple(sorted(group.operators, key=order.index)), slots=group.slots)
        for name, group in sorted(plan.groups.items())
    }


def check_count(name: str, count: object) -> None:
    """Raise PlanError unless `count` is a positive integer."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PlanError(f"{name} = {count!r} is not a number that a plan can have; give a whole number, 1 or more.")


def _check_replicas(operator: str, count: int, region: Region) -> None:
    check_count(f"replicas of '{operator}'", count)
    if count > MAX_REPLICAS:
        raise PlanError(
            f"replicas of '{operator}' = {count:,} is too many, because each replica is one task in every batch; give "
            f"{MAX_REPLICAS:,} at most."
        )
    if count > 1 and not region.replicable:
        raise PlanError(f"Operator '{operator}' has global state and therefore one replica, not {count}; give 1.")


def _check_cuts(flow: Dataflow, plan: Plan) -> None:
    for name in sorted(plan.cuts):
        if name not in flow:
            raise PlanError(
                f"The plan cuts after '{name}', which is not an operator of dataflow '{flow.name}'; its operators are "
                f"{_names(operator.name for operator in flow.operators)}."
            )
        if flow[name].kind is Kind.SINK:
            raise PlanError(f"The plan cuts after sink '{name}', which has no output; remove it from \"cuts\".")
    for name, operator in forbidden_cuts(flow).items():
        if name in plan.cuts:
            raise PlanError(
                f"The plan cuts after '{name}', but a channel appends rows, and the result of '{operator}' in output "
                f'mode complete replaces the previous one; remove "{name}" from "cuts".'
            )


def _replicated(flow: Dataflow) -> list[Region]:
    return [region for region in regions(flow) if region.kind is not Kind.SOURCE]


def _operators(region: Region) -> str:
    if len(region.operators) == 1:
        return f"operator '{region.name}'"
    return f"operators {_names(repr(name) for name in region.operators)}, which are replicated together"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
