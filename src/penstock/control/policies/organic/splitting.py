"""Where to split a pipeline, and the gain of a split (section 4.2, algorithm 3).

Let a thread spend the share c_i of its busy time on operator i and the rest, the overhead 1 - sum c_i, on moving rows.
After a split the slower part limits the throughput, and each part has the whole overhead:

    utility = 1 / (overhead + max(head, tail)),  gain = utility - 1
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec


class OperatorStep(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a pipeline."""

    operator: str
    cost: float  # share of the busy time of the pipeline
    cuttable: bool = True  # whether a cut may follow


def overhead(steps: Sequence[OperatorStep]) -> float:
    return max(0.0, 1.0 - sum(step.cost for step in steps))


def split_gain(steps: Sequence[OperatorStep], cuts: Sequence[int]) -> float:
    """Return the predicted gain of throughput if new pipelines begin at these positions.

    >>> pair = [OperatorStep(operator="a", cost=0.75), OperatorStep(operator="b", cost=0.1)]
    >>> round(split_gain(pair, [1]), 2)
    0.11
    """
    bounds = [0, *sorted(cuts), len(steps)]
    parts = [sum(step.cost for step in steps[i:j]) for i, j in pairwise(bounds)]
    busy = overhead(steps) + max(parts)
    return 1.0 / busy - 1.0 if busy > 0 else 0.0


def balanced_position(steps: Sequence[OperatorStep]) -> int | None:
    """Return the position at which the two parts have the most equal costs; the first one of several.

    The result is the index of the first operator of the second part. None: the pipeline cannot be split.

    >>> steps = [OperatorStep(operator=name, cost=cost) for name, cost in (("a", 0.2), ("b", 0.1), ("c", 0.4))]
    >>> balanced_position(steps)
    2
    """
    positions = [k for k in range(1, len(steps)) if steps[k - 1].cuttable]
    costs = [step.cost for step in steps]
    return min(positions, key=lambda k: round(abs(sum(costs[:k]) - sum(costs[k:])), 9), default=None)


def balanced_positions(steps: Sequence[OperatorStep], parts: int) -> list[int]:
    """Return up to `parts` - 1 positions. Each one splits the costliest part so far at its balanced position."""
    positions: list[int] = []
    while len(positions) < parts - 1:
        bounds = [0, *positions, len(steps)]
        ranges = sorted(pairwise(bounds), key=lambda part: -sum(step.cost for step in steps[slice(*part)]))
        first, last = ranges[0]
        position = balanced_position(steps[first:last])
        if position is None:
            break
        positions = sorted([*positions, first + position])
    return positions
