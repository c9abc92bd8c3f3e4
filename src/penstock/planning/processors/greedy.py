"""The greedy pass of DRS: add one processor at a time where it reduces the latency most.

Source: DRS (Fu et al. 2017), algorithm 1 and theorem 1, after Fox (1966). The latency of each operator is decreasing
and convex in its processors, so the gains of further processors only shrink. Each prefix of the pass is therefore
optimal for its number of processors, and one pass answers all budgets and targets. A heap holds the next gain of each
operator: one processor costs O(log operators), and the station models yield the next gain in O(1).
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat

from penstock.planning.processors.operator_network import OperatorNetwork

UNLIMITED = sys.maxsize  # the budget if there is none


def add_processors(
    network: OperatorNetwork, start: Sequence[int], budget: int, excess_s: float = math.inf, least_s: float = 0.0
) -> list[int]:
    """Add processors until the budget is used, the mean latency has dropped by `excess_s`, or none gains `least_s`."""
    gains = [operator.station.drops_s(k) for operator, k in zip(network.operators, start, strict=True)]
    return greedy_pass(network, start, budget, network.visits(), gains, excess_s, least_s)


def greedy_pass(
    network: OperatorNetwork,
    start: Sequence[int],
    budget: int,
    weights: Sequence[float],
    gains: Sequence[Iterator[float]],
    excess: float = math.inf,
    least: float = 0.0,
) -> list[int]:
    """Add processors in the order of their weighted gain until `budget` is used or `excess` has been gained.

    A processor that gains `least` or less is not added.

    `gains[i]` yields the gain of each further processor of operator i after `start[i]`; it is multiplied by
    `weights[i]`. The pass has no state, so it can continue from the counts of an earlier pass. The loop avoids function
    calls, because planners spend most of their time here.
    """
    counts = list(start)
    heap = []  # (negative weighted gain, operator, negative weight, next gain); heapq has the smallest entry on top
    for i, operator in enumerate(network.operators):
        next_gain = gains[i].__next__
        if operator.max_processors is not None:
            next_gain = chain(islice(gains[i], operator.max_processors - counts[i]), repeat(0.0)).__next__
        heap.append((-weights[i] * next_gain(), i, -weights[i], next_gain))
    heapq.heapify(heap)
    replace_top = heapq.heapreplace
    for _ in range(budget - sum(counts)):
        negative_gain, i, weight, next_gain = heap[0]
        if negative_gain >= -least:  # all operators are at their bound or at the best count of their model
            break
        counts[i] += 1
        replace_top(heap, (weight * next_gain(), i, weight, next_gain))
        excess += negative_gain
        if excess <= 0.0:
            break
    return counts
