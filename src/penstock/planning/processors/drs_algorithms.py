"""AssignProcessors and MinProcessors (DRS, Fu et al. 2017, algorithms 1 and 2, their loop and lower bounds put right).

A budget, a bound or a target that cannot be met is not an error: the best plan there is comes back, with the operator
that binds, the external rate that it sustains, and what the demand would need.
"""

from __future__ import annotations

import sys

import numpy as np

from penstock.dataflow.errors import PlanError
from penstock.models.queueing.errors import counted, positive, probability, told_apart
from penstock.planning.processors.best_rate import best_rate
from penstock.planning.processors.greedy import add_processors
from penstock.planning.processors.operator_network import Assignment, OperatorNetwork, Requirement
from penstock.planning.processors.quantile import meet_quantile

_UNLIMITED = sys.maxsize
_NEAR_FLOOR = 1.01  # where the target is below what budget and bounds let one reach, plan for this times the floor


def assign_processors(network: OperatorNetwork, budget: int) -> Assignment:
    """The least mean latency with at most `budget` processors. Exact.

    >>> from penstock.models.queueing import MMk
    >>> from penstock.planning.processors import OperatorStation, OperatorNetwork, assign_processors
    >>> split = OperatorStation(name="split", station=MMk(arrival_per_s=8.0, service_per_s=9.6))
    >>> count = OperatorStation(name="count", station=MMk(arrival_per_s=24.0, service_per_s=10.0))
    >>> assign_processors(OperatorNetwork(external_per_s=8.0, operators=(split, count)), budget=6).processors
    {'split': 2, 'count': 4}
    """
    _check_budget(network, budget)
    start = network.keeping_up()
    if start is None or sum(start) > budget:
        return best_rate(network, budget)
    return Assignment(network=network, counts=tuple(add_processors(network, start, budget)))


def min_processors(
    network: OperatorNetwork, latency_s: float, quantile: float | None = None, budget: int | None = None
) -> Assignment:
    """The fewest processors with a mean latency of at most `latency_s`, or with that quantile of it.

    On the mean it is exact. A quantile is no sum over operators: see `penstock.planning.processors.quantile`.
    With a budget that is too small, the best plan within it comes back, not feasible, with what the target needs.
    """
    positive("the target for the latency (s)", latency_s)
    if quantile is not None:
        probability("the quantile", quantile)
    if budget is not None:
        _check_budget(network, budget)
    limit = _UNLIMITED if budget is None else budget
    start = network.keeping_up()
    if start is None or sum(start) > limit:
        free = network.unbounded()
        target = min_processors(free, latency_s, quantile) if free.keeping_up() is not None else None
        return best_rate(network, limit, target)

    def meet(target_s: float) -> tuple[list[int], float]:
        if quantile is None:
            return _meet_mean(network, start, target_s, limit)
        counts = meet_quantile(network, start, target_s, quantile, limit)
        return counts, network.latency(counts).quantile_s(quantile)

    best, reached = meet(latency_s)
    if reached <= latency_s:
        return Assignment(network=network, counts=tuple(best))
    what = "the mean latency" if quantile is None else f"the {quantile} quantile of the latency"
    comes, asked = told_apart(reached, latency_s, digits=4)
    said = f"{what} comes to {comes} s at best, not {asked} s"
    out_of_budget = sum(best) >= limit
    bounded = out_of_budget or any(operator.most is not None for operator in network.operators)
    in_reach = quantile is not None or network.floor_s() < latency_s  # else there is nothing to look for
    target = min_processors(network.unbounded(), latency_s, quantile) if bounded and in_reach else None
    if target is not None and target.feasible and out_of_budget:
        counts = best
    else:  # no sense in paying for the last per mille of a target that is out of reach
        counts, _ = meet(_NEAR_FLOOR * reached)
    if target is not None and target.feasible:
        binding, why = _held_back(network, best, target, out_of_budget=out_of_budget)
        why += f"; it needs {target.total} processors"
        needs = Requirement(processors=target.processors, reason=f"{said}, {why}", in_the_way=why)
    else:  # service times, or the best k of the models, are in the way
        binding = network.operators[int(np.argmax(_shares_s(network, best)))].name
        why = f"with any number of processors; make '{binding}', the slowest, faster or raise the target"
        needs = Requirement(processors=None, reason=f"{said}, {why}", in_the_way=why)
    return Assignment(network=network, counts=tuple(counts), binding=binding, needs=needs)


def one_less(assignment: Assignment) -> Assignment:
    """The best with one processor less: the pass that led here, one step before its end.

    Exact: the last step of the pass is the one that gained least.
    """
    network, counts = assignment.network, assignment.counts
    start = network.keeping_up()
    gains = [
        (visits * next(operator.station.drops_s(k - 1)), i)
        for i, (operator, visits, k) in enumerate(zip(network.operators, network.visits(), counts, strict=True))
        if start is not None and k > start[i]
    ]
    if not gains:  # nobody can do without one and keep up
        return assign_processors(network, assignment.total - 1)
    last = min(gains)[1]
    return Assignment(network=network, counts=(*counts[:last], counts[last] - 1, *counts[last + 1 :]))


def _meet_mean(network: OperatorNetwork, start: list[int], target_s: float, limit: int) -> tuple[list[int], float]:
    """And the mean that it comes to."""
    counts, mean = start, network.mean_s(start)
    if mean > target_s:
        # The pass adds gains up, so it may be off by their rounding: stop it that much early, then look closely.
        counts = add_processors(network, start, limit, excess_s=(mean - target_s) - 1e-12 * mean)
        mean = network.mean_s(counts)
    while mean > target_s and sum(counts) < limit:
        more = add_processors(network, counts, sum(counts) + 1)
        if more == counts:
            break
        counts, mean = more, network.mean_s(more)
    return counts, mean


def _held_back(
    network: OperatorNetwork, best: list[int], target: Assignment, *, out_of_budget: bool
) -> tuple[str, str]:
    """The operator that binds, and why: the target is in reach, but the budget or an upper bound is in the way."""
    short = {
        operator.name: share
        for operator, k, share in zip(network.operators, best, _shares_s(network, best), strict=True)
        if target.processors[operator.name] > k and (out_of_budget or operator.most == k)
    }
    binding = max(short or target.processors, key=lambda name: (short or target.processors)[name])
    return binding, f"within the budget of {sum(best)}" if out_of_budget else f"within the max of '{binding}'"


def _shares_s(network: OperatorNetwork, counts: list[int]) -> list[float]:
    """visits_i E[T_i](k_i)."""
    return [
        visits * operator.station.mean_s(k)
        for operator, k, visits in zip(network.operators, counts, network.visits(), strict=True)
    ]


def _check_budget(network: OperatorNetwork, budget: int) -> None:
    least = sum(operator.least for operator in network.operators)
    if budget < least:
        raise PlanError(
            f"a budget of {counted(budget, 'processor')} was given but {len(network.operators)} operators cannot run "
            f"on fewer than {least} (one each, or their min); give at least that many"
        )
