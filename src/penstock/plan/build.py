"""Build plans: the default plan of a dataflow, and a plan with other replica counts."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.plan.cuts import required_cuts
from penstock.plan.plan import Plan
from penstock.plan.validation import check_count, counts_by_first_operator, validated


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


def rescaled(flow: Dataflow, plan: Plan, replicas: Mapping[str, int]) -> Plan:
    """Return the plan with other replica counts, and with the cuts that they require.

    Args:
        flow: The dataflow that the plan is for.
        plan: The plan to change. It keeps its cuts and slots.
        replicas: New number of replicas by operator name. Operators that are replicated together change together.

    Raises:
        PlanError: An operator is unknown, or a count is not allowed for it.
    """
    counts = counts_by_first_operator(_declared(flow), plan.replicas) | counts_by_first_operator(flow, replicas)
    return validated(flow, plan.replace(replicas=counts, cuts=plan.cuts | frozenset(required_cuts(flow, counts))))


def _declared(flow: Dataflow) -> Dataflow:
    if not isinstance(flow, Dataflow):
        raise DataflowError(f"flow is {flow!r}; it must be a Dataflow. Import it from its file.")
    return flow
