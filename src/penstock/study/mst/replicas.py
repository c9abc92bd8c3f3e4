"""The paper's rule for the replicas of a number of executors."""

from __future__ import annotations

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.plan import Plan, default_plan, pipelines


def replicas_per_query(executors: int, slots_per_executor: int, units: int) -> int:
    """Return the replicas of each processing unit: d = max(1, floor(m gamma / n)), Imai et al. (2017), equation 1.

    >>> replicas_per_query(3, 2, 3), replicas_per_query(5, 2, 3), replicas_per_query(1, 2, 3)
    (2, 3, 1)
    """
    return max(1, executors * slots_per_executor // units)


def plan_for(flow: Dataflow, executors: int, slots_per_executor: int) -> Plan:
    """Return the plan of the rule. The processing units are queries, which run concurrently, unlike their stages."""
    slots = executors * slots_per_executor
    units = len(pipelines(flow, default_plan(flow, slots=slots)))
    replicas = replicas_per_query(executors, slots_per_executor, units)
    counts = {region.name: replicas for region in regions(flow) if region.kind is not Kind.SOURCE and region.replicable}
    return default_plan(flow, slots=slots, replicas=counts)
