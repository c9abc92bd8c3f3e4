"""The default plan, validity of a plan against a dataflow, and changes that keep it valid."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PlanError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import region_of, regions
from penstock.plan.cuts import required_cuts
from penstock.plan.plan import Plan

MOST_REPLICAS = 10_000  # of a region: a slip of the finger is not to keep a run busy for hours


def default_plan(flow: Dataflow, *, slots: int = 2, replicas: Mapping[str, int] | None = None) -> Plan:
    """As few queries as the graph allows; one replica a slot unless given, by region or by any operator of it."""
    flow.check()
    _check_count("slots", slots)
    counts = {
        region.name: slots if region.replicable else 1 for region in regions(flow) if region.kind is not Kind.SOURCE
    }
    counts |= _by_region(flow, replicas or {})
    plan = Plan(dataflow=flow.name, cuts=frozenset(required_cuts(flow, counts)), replicas=counts, slots=slots)
    validate(flow, plan)
    return plan


def rescaled(flow: Dataflow, plan: Plan, replicas: Mapping[str, int]) -> Plan:
    """The plan with other replicas, and with the cuts that these make necessary."""
    counts = plan.replicas | _by_region(flow, replicas)
    changed = plan.replace(replicas=counts, cuts=plan.cuts | frozenset(required_cuts(flow, counts)))
    validate(flow, changed)
    return changed


def validate(flow: Dataflow, plan: Plan) -> None:
    """Raises PlanError, naming what is wrong and what would be right."""
    flow.check()
    if plan.dataflow != flow.name:
        raise PlanError(f"this plan is for dataflow '{plan.dataflow}', not for '{flow.name}'")
    _check_count("slots", plan.slots)
    for name in sorted(plan.cuts):
        if name not in flow:
            raise PlanError(
                f"the plan cuts after '{name}', which is no operator of '{flow.name}'; it has "
                f"{', '.join(one.name for one in flow.operators)}"
            )
        if flow[name].kind is Kind.SINK:
            raise PlanError(f"the plan cuts after sink '{name}', which has no output; take it out of the cuts")
    known = {region.name: region for region in regions(flow) if region.kind is not Kind.SOURCE}
    for name, count in plan.replicas.items():
        if name not in known:
            raise PlanError(
                f"the plan gives replicas to '{name}', which is no region of '{flow.name}'; its regions are "
                f"{', '.join(known)}"
            )
        _check_count(f"replicas of '{name}'", count)
        if count > MOST_REPLICAS:
            raise PlanError(
                f"replicas of '{name}' = {count:,}: each is a task in every batch; give {MOST_REPLICAS:,} at most"
            )
        if count > 1 and not known[name].replicable:
            raise PlanError(f"'{name}' has global state and therefore one replica, not {count}")
    for name in known:
        if name not in plan.replicas:
            raise PlanError(f"the plan gives no replicas to region '{name}'; add \"{name}\": 1 or more")
    for name, reason in required_cuts(flow, plan.replicas).items():
        if name not in plan.cuts:
            raise PlanError(f"the plan must cut after '{name}' ({reason}); add it to the cuts")


def _by_region(flow: Dataflow, replicas: Mapping[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, count in replicas.items():
        if name not in flow:
            raise PlanError(
                f"'{name}' is no operator of '{flow.name}'; it has {', '.join(one.name for one in flow.operators)}"
            )
        region = region_of(flow, name)
        if region.kind is Kind.SOURCE:
            raise PlanError(f"'{name}' is a source: it is read by the replicas of the region behind it")
        if counts.get(region.name, count) != count:
            raise PlanError(
                f"'{name}' and '{region.name}' are one region and have one count, but {count} and "
                f"{counts[region.name]} were given"
            )
        counts[region.name] = count
    return counts


def _check_count(what: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PlanError(f"{what} = {count!r}: give a whole number, 1 or more")
