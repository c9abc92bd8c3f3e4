"""Build plans: the default plan of a dataflow, and a plan with other replica counts or other cuts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import DataflowError, PlanError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.plan.cuts import required_cuts
from penstock.plan.plan import Plan, Threads
from penstock.plan.validation import check_count, counts_by_first_operator, validated

_THREADS = ".threads"  # names of operators contain no dot


def default_plan(
    flow: Dataflow, *, slots: int = 2, replicas: Mapping[str, int] | None = None, share_queries: bool = True
) -> Plan:
    """Return the plan with the fewest queries that the dataflow allows.

    Args:
        flow: The dataflow to plan for.
        slots: Number of tasks that run at the same time.
        replicas: Replicas by operator name. An operator that is not named gets one replica per slot, or one replica
            if it has global state.
        share_queries: False gives each operator with state a query of its own.

    Raises:
        PlanError: An operator is unknown, or a count is not allowed for it.
        DataflowError: The dataflow is incomplete.
    """
    _declared(flow).check()
    check_count("slots", slots)
    counts = {
        region.name: slots if region.replicable else 1 for region in regions(flow) if region.kind is not Kind.SOURCE
    }
    counts |= counts_by_first_operator(flow, replicas or {})
    cuts = frozenset(required_cuts(flow, counts, share_queries=share_queries))
    return validated(flow, Plan(dataflow=flow.name, cuts=cuts, replicas=counts, slots=slots))


def rescaled(flow: Dataflow, plan: Plan, counts: Mapping[str, Threads]) -> Plan:
    """Return the plan with other numbers of replicas or threads, and with the cuts that they require.

    Args:
        flow: The dataflow that the plan is for.
        plan: The plan to change. It keeps its cuts and slots.
        counts: New number of replicas by operator name, or of threads by "<operator>.threads": one number for all
            replicas, or one for each. Operators that are replicated together change together. If their number of
            replicas changes, all replicas get the largest number of threads that one of them has.

    Raises:
        PlanError: An operator is unknown, or a count is not allowed for it.
    """
    threads = {name.removesuffix(_THREADS): count for name, count in counts.items() if name.endswith(_THREADS)}
    others: dict[str, int] = {}
    for name, count in counts.items():
        if not name.endswith(_THREADS):
            if not isinstance(count, int):
                raise PlanError(f"{count} replicas are given for '{name}'; give one whole number.")
            others[name] = count
    before = counts_by_first_operator(_declared(flow), plan.replicas)
    replicas = before | counts_by_first_operator(flow, others)
    changed = {name for name, count in replicas.items() if before.get(name) != count}
    plan = plan.with_equal_replicas(
        name for region in regions(flow) if region.name in changed for name in region.operators
    )
    # Rates that were measured with other threads do not apply any more.
    rates = {name: own for name, own in plan.rates.items() if name not in threads}
    cuts = plan.cuts | frozenset(required_cuts(flow, replicas))
    plan = plan.replace(replicas=replicas, threads=plan.threads | threads, rates=rates, cuts=cuts)
    return validated(flow, plan)


def recut(flow: Dataflow, plan: Plan, *, cut: Iterable[str] = (), fuse: Iterable[str] = ()) -> Plan:
    """Return the plan with additional cuts, and without others.

    Args:
        flow: The dataflow that the plan is for.
        plan: The plan to change. It keeps its replicas and slots.
        cut: Operators after which to cut, so that the operators behind them run in another query.
        fuse: Operators after which to remove the cut, so that they share a query with the operators behind them.

    Raises:
        PlanError: An operator is unknown, has no cut to remove, or its cut is not allowed or required.
    """
    added, removed = frozenset(cut), frozenset(fuse)
    required = required_cuts(_declared(flow), counts_by_first_operator(flow, plan.replicas))
    for name in sorted(removed):
        if name in added:
            raise PlanError(f"The cut after '{name}' cannot be both added and removed; name '{name}' once.")
        if name not in plan.cuts:
            cuts = f"it cuts after {', '.join(sorted(plan.cuts))}" if plan.cuts else "it has no cuts"
            raise PlanError(f"The plan has no cut after '{name}' that could be removed; {cuts}.")
        if name in required:
            raise PlanError(f"The cut after '{name}' is required ({required[name]}), so it cannot be removed.")
    return validated(flow, plan.replace(cuts=(plan.cuts - removed) | added))


def _declared(flow: Dataflow) -> Dataflow:
    if not isinstance(flow, Dataflow):
        raise DataflowError(f"flow is {flow!r}; it must be a Dataflow. Import it from its file.")
    return flow
