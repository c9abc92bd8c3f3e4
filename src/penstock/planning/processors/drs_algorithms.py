"""AssignProcessors and MinProcessors of DRS (Fu et al. 2017, algorithms 1 and 2, with corrected loop and lower bounds).

A budget, bound or target that cannot be met is not an error. The planners return the best plan within the limits, with
the operator that binds, the external rate that it sustains, and the processors that the demand would need.
"""

from __future__ import annotations

import numpy as np

from penstock.dataflow.errors import PlanError
from penstock.models.queueing.errors import counted, distinguishable, positive, probability
from penstock.planning.processors.assignment import Assignment, Requirement
from penstock.planning.processors.best_rate import best_rate
from penstock.planning.processors.greedy import UNLIMITED, add_processors
from penstock.planning.processors.operator_network import OperatorNetwork
from penstock.planning.processors.quantile_search import meet_quantile

# Without a budget the pass ends at a gain of this share of the lower bound of the latency. The latency of a query whose
# replicas cost nothing approaches its bound as 1/k, so its gains never end.
_NEGLIGIBLE = 1e-9
_NEAR_BEST = 1.01  # for a target out of reach, plan for this multiple of the best latency


def assign_processors(network: OperatorNetwork, budget: int) -> Assignment:
    """Return the assignment with the lowest mean latency within `budget` processors. Exact.

    >>> from penstock.models.queueing import MMk
    >>> from penstock.planning.processors import OperatorNetwork, OperatorStation, assign_processors
    >>> split = OperatorStation(name="split", station=MMk(arrival_per_s=8.0, service_per_s=9.6))
    >>> count = OperatorStation(name="count", station=MMk(arrival_per_s=24.0, service_per_s=10.0))
    >>> assign_processors(OperatorNetwork(external_per_s=8.0, operators=(split, count)), budget=6).processors
    {'split': 2, 'count': 4}
    """
    _check_budget(network, budget)
    start = network.least_stable()
    if start is None or sum(start) > budget:
        return best_rate(network, budget)
    return Assignment(network=network, counts=tuple(add_processors(network, start, budget)))


def min_processors(
    network: OperatorNetwork, latency_s: float, quantile: float | None = None, budget: int | None = None
) -> Assignment:
    """Return the fewest processors whose mean latency, or its `quantile`, is at most `latency_s`.

    The result is exact for the mean. A quantile is not a sum over operators; see `quantile_search`. If the budget is
    too small, return the best plan within it, marked as not feasible, with the processors that the target needs.

    >>> from penstock.models.queueing import MMk
    >>> from penstock.planning.processors import OperatorNetwork, OperatorStation, min_processors
    >>> split = OperatorStation(name="split", station=MMk(arrival_per_s=8.0, service_per_s=9.6))
    >>> min_processors(OperatorNetwork(external_per_s=8.0, operators=(split,)), latency_s=0.2).processors
    {'split': 2}
    """
    positive("The latency target (s)", latency_s)
    if quantile is not None:
        probability("The quantile", quantile)
    if budget is not None:
        _check_budget(network, budget)
    limit = UNLIMITED if budget is None else budget
    start = network.least_stable()
    if start is None or sum(start) > limit:
        unbounded = network.unbounded()
        target = min_processors(unbounded, latency_s, quantile) if unbounded.least_stable() is not None else None
        return best_rate(network, limit, target)

    def meet(target_s: float) -> tuple[list[int], float]:
        if quantile is None:
            return _meet_mean(network, start, target_s, limit)
        counts = meet_quantile(network, start, target_s, quantile, limit)
        return counts, network.latency(counts).quantile_s(quantile)

    best, reached_s = meet(latency_s)
    if reached_s <= latency_s:
        return Assignment(network=network, counts=tuple(best))

    out_of_budget = sum(best) >= limit
    bounded = out_of_budget or any(operator.max_processors is not None for operator in network.operators)
    reachable = quantile is not None or network.floor_s() < latency_s
    target = min_processors(network.unbounded(), latency_s, quantile) if bounded and reachable else None
    metric = "the mean latency" if quantile is None else f"the {quantile} quantile of the latency"
    reached, asked = distinguishable(reached_s, latency_s, digits=4)
    shortage = f"{metric} is at best {reached} s instead of {asked} s"
    if target is not None and target.feasible:
        # Within an exhausted budget every processor counts; below a bound the last per mille is not worth its price.
        counts = best if out_of_budget else meet(_NEAR_BEST * reached_s)[0]
        return _limited(network, best, counts, target, shortage, out_of_budget)
    return _unreachable(network, best, meet(_NEAR_BEST * reached_s)[0], shortage)


def one_less(assignment: Assignment) -> Assignment:
    """Return the best assignment with one processor less.

    Exact: it is the greedy pass without its last step, which is the step with the smallest gain.
    """
    network, counts = assignment.network, assignment.counts
    start = network.least_stable()
    gains = [
        (visits * next(operator.station.drops_s(k - 1)), i)
        for i, (operator, visits, k) in enumerate(zip(network.operators, network.visits(), counts, strict=True))
        if start is not None and k > start[i]
    ]
    if not gains:  # no operator remains stable with one processor less
        return assign_processors(network, assignment.total - 1)
    last = min(gains)[1]
    return Assignment(network=network, counts=(*counts[:last], counts[last] - 1, *counts[last + 1 :]))


def _meet_mean(network: OperatorNetwork, start: list[int], target_s: float, limit: int) -> tuple[list[int], float]:
    """Return the fewest processors for a mean latency, and the mean that they reach."""
    counts, mean_s = start, network.mean_s(start)
    least_s = _NEGLIGIBLE * network.floor_s() if limit == UNLIMITED else 0.0
    if mean_s > target_s:
        # The pass sums gains, so its result has rounding errors. Stop it slightly early, then check exactly.
        counts = add_processors(network, start, limit, excess_s=(mean_s - target_s) - 1e-12 * mean_s, least_s=least_s)
        mean_s = network.mean_s(counts)
    while mean_s > target_s and sum(counts) < limit:
        more = add_processors(network, counts, sum(counts) + 1, least_s=least_s)
        if more == counts:
            break
        counts, mean_s = more, network.mean_s(more)
    return counts, mean_s


def _limited(
    network: OperatorNetwork,
    best: list[int],
    counts: list[int],
    target: Assignment,
    shortage: str,
    out_of_budget: bool,
) -> Assignment:
    """Return the plan for a reachable target that the budget or an upper bound prevents."""
    shares_s = {
        operator.name: share_s
        for operator, k, share_s in zip(network.operators, best, network.mean_shares_s(best), strict=True)
        if target.processors[operator.name] > k and (out_of_budget or operator.max_processors == k)
    }
    binding = max(shares_s or target.processors, key=lambda name: (shares_s or target.processors)[name])
    limit = f"within the budget of {sum(best)}" if out_of_budget else f"within the max of '{binding}'"
    limit += f"; it needs {target.total} processors"
    needs = Requirement(processors=target.processors, reason=f"{shortage}, {limit}", in_the_way=limit)
    return Assignment(network=network, counts=tuple(counts), binding=binding, needs=needs)


def _unreachable(network: OperatorNetwork, best: list[int], counts: list[int], shortage: str) -> Assignment:
    """Return the plan for a target below the service times or below the best latency of the models."""
    binding = network.operators[int(np.argmax(network.mean_shares_s(best)))].name
    limit = f"with any number of processors; make '{binding}', the slowest, faster or raise the target"
    needs = Requirement(processors=None, reason=f"{shortage}, {limit}", in_the_way=limit)
    return Assignment(network=network, counts=tuple(counts), binding=binding, needs=needs)


def _check_budget(network: OperatorNetwork, budget: int) -> None:
    min_total = sum(operator.min_processors for operator in network.operators)
    if budget < min_total:
        raise PlanError(
            f"The budget is {counted(budget, 'processor')}, but {len(network.operators)} operators need at least "
            f"{min_total} (one each, or their min). Give at least that many."
        )
