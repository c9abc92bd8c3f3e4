"""What to do where the demand cannot be kept up with: the highest external rate that budget and bounds allow. Exact.

Raise the operator that saturates first, until it may not be raised. An operator is raised only while it is the slowest,
so all others end with the fewest processors for what the binding one lets through (but for ties, which are taken back):
nothing is paid for that waits.
"""

from __future__ import annotations

import heapq

from penstock.models.queueing.errors import counted, told_apart
from penstock.planning.processors.operator_network import (
    Assignment,
    OperatorNetwork,
    OperatorStation,
    Requirement,
    sustained_per_s,
)

_ROUNDING = 1e-12  # rates closer than this are the same, and a processor between them would be paid for nothing


def best_rate(network: OperatorNetwork, budget: int, target: Assignment | None = None) -> Assignment:
    """`target` is the plan that would meet the caller's target, if that is known."""
    counts = [operator.least for operator in network.operators]
    visits = network.visits()
    heap = [
        (sustained_per_s(operator.station, operator.least, v), i)
        for i, (operator, v) in enumerate(zip(network.operators, visits, strict=True))
    ]
    heapq.heapify(heap)
    left = budget - sum(counts)
    while True:
        rate, i = heap[0]
        operator = network.operators[i]
        if operator.most == counts[i]:
            why = f"its max is {counts[i]}"
            break
        if (faster := sustained_per_s(operator.station, counts[i] + 1, visits[i])) <= rate:
            why = "its slots are used up"
            break
        if left == 0:
            why = f"the budget of {budget} is used up"
            break
        counts[i] += 1
        left -= 1
        heapq.heapreplace(heap, (faster, i))
    for j, (other, v) in enumerate(zip(network.operators, visits, strict=True)):
        if counts[j] > other.least and sustained_per_s(other.station, counts[j] - 1, v) >= rate * (1 - _ROUNDING):
            counts[j] -= 1
    most, asked = told_apart(rate, network.external_per_s)
    said = (
        f"operator '{operator.name}' with {counted(counts[i], 'processor')} is saturated at {most} rows/s from outside "
        f"and {asked} come, and {why}"
    )
    return Assignment(network=network, counts=tuple(counts), binding=operator.name, needs=_needs(network, target, said))


def _needs(network: OperatorNetwork, target: Assignment | None, said: str) -> Requirement:
    if target is not None and target.feasible:
        return Requirement(processors=target.processors, reason=f"{said}; the target needs {target.total} processors")
    free = network.unbounded()
    counts = free.keeping_up()
    if counts is None:
        stuck = ", ".join(f"'{name}'" for name in _without_end(free.operators))
        return Requirement(
            processors=None, reason=f"{said}; no number of processors makes {stuck} keep up: raise its slots"
        )
    processors = Assignment(network=free, counts=tuple(counts)).processors
    return Requirement(processors=processors, reason=f"{said}; keeping up needs {sum(counts)} processors")


def _without_end(operators: tuple[OperatorStation, ...]) -> list[str]:
    return [operator.name for operator in operators if operator.station.least_stable() is None]
