"""The highest external rate within budget and bounds, for a demand that cannot be sustained. Exact.

The operator that saturates first gets one more processor until it may not grow further. An operator grows only while it
is the slowest. All others therefore end with the fewest processors for the rate of the binding operator, except for
ties, which are undone.
"""

from __future__ import annotations

import heapq

from penstock.models.queueing.errors import counted, distinguishable
from penstock.planning.processors.assignment import Assignment, Requirement
from penstock.planning.processors.operator_network import OperatorNetwork, sustained_per_s

_ROUNDING = 1e-12  # rates that differ by less are equal, and a processor between them would be wasted


def best_rate(network: OperatorNetwork, budget: int, target: Assignment | None = None) -> Assignment:
    """Return the infeasible assignment with the highest rate.

    `target` is the plan that would meet the target, if known.
    """
    counts = [operator.min_processors for operator in network.operators]
    visits = network.visits()
    heap = [(rate, i) for i, rate in enumerate(network.sustained_per_s(counts))]
    heapq.heapify(heap)
    unused = budget - sum(counts)
    while True:
        rate, i = heap[0]
        operator = network.operators[i]
        if operator.max_processors == counts[i]:
            limit = f"its max is {counts[i]}"
            break
        if (faster := sustained_per_s(operator.station, counts[i] + 1, visits[i])) <= rate:
            limit = "its slots are used up"
            break
        if unused == 0:
            limit = f"the budget of {budget} is used up"
            break
        counts[i] += 1
        unused -= 1
        heapq.heapreplace(heap, (faster, i))
    for j, (other, v) in enumerate(zip(network.operators, visits, strict=True)):
        if counts[j] > other.min_processors and sustained_per_s(other.station, counts[j] - 1, v) >= rate * (
            1 - _ROUNDING
        ):
            counts[j] -= 1
    sustained, demanded = distinguishable(rate, network.external_per_s)
    shortage = (
        f"operator '{operator.name}' with {counted(counts[i], 'processor')} sustains an external rate of {sustained} "
        f"rows/s, but {demanded} arrive and {limit}"
    )
    return Assignment(
        network=network, counts=tuple(counts), binding=operator.name, needs=_requirement(network, target, shortage)
    )


def _requirement(network: OperatorNetwork, target: Assignment | None, shortage: str) -> Requirement:
    if target is not None and target.feasible:
        reason = f"{shortage}; the target needs {target.total} processors"
        return Requirement(processors=target.processors, reason=reason)
    unbounded = network.unbounded()
    counts = unbounded.least_stable()
    if counts is None:
        unstable = ", ".join(f"'{o.name}'" for o in unbounded.operators if o.station.least_stable() is None)
        reason = f"{shortage}; no number of processors makes {unstable} stable: add slots"
        return Requirement(processors=None, reason=reason)
    processors = Assignment(network=unbounded, counts=tuple(counts)).processors
    return Requirement(processors=processors, reason=f"{shortage}; a stable plan needs {sum(counts)} processors")
