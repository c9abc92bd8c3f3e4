"""The pass: processors one at a time to where they gain most, with a heap.

Each curve is decreasing and convex, so its gains only shrink, and each prefix of the pass is optimal for its number of
processors (DRS, Fu et al. 2017, theorem 1, after Fox 1966): one pass answers for all budgets and all targets, where
the print restarts algorithm 1 for each. The heap holds the next gain of each operator, so a processor costs
O(log operators); the models hand out their next gain in O(1).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat

from penstock.planning.processors.operator_network import OperatorNetwork


def add_processors(
    network: OperatorNetwork, start: Sequence[int], budget: int, excess_s: float = math.inf
) -> list[int]:
    """Lowers the mean latency until the budget is used, it has fallen by `excess_s`, or nothing gains any more."""
    gains = [operator.station.drops_s(k) for operator, k in zip(network.operators, start, strict=True)]
    return marginal_pass(network, start, budget, network.visits(), gains, excess_s)


def marginal_pass(
    network: OperatorNetwork,
    start: Sequence[int],
    budget: int,
    weights: Sequence[float],
    gains: Sequence[Iterator[float]],
    excess: float = math.inf,
) -> list[int]:
    """`gains[i]` yields what one more processor after start[i] gains at operator i, in its units of weights[i].

    It has no memory, so it may go on from any counts that an earlier pass returned. Flat, because it is what is timed.
    """
    counts = list(start)
    heap = []  # (the weighted gain, below 0 because heapq keeps the smallest on top; operator; weight; what is next)
    for i, operator in enumerate(network.operators):
        following = gains[i].__next__
        if operator.most is not None:
            following = chain(islice(gains[i], operator.most - counts[i]), repeat(0.0)).__next__
        heap.append((-weights[i] * following(), i, -weights[i], following))
    heapq.heapify(heap)
    replace_top = heapq.heapreplace
    for _ in range(budget - sum(counts)):
        fall, i, weight, following = heap[0]
        if fall >= 0.0:  # at the bound, or past the best k of a model that has one
            break
        counts[i] += 1
        replace_top(heap, (weight * following(), i, weight, following))
        excess += fall
        if excess <= 0.0:
            break
    return counts
