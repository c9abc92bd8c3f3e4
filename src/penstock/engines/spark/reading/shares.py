"""The shares of a batch that replicas receive: ranges of its rows, and key groups."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

KEY_GROUPS = 1_024  # a hash spreads them over replicas with unequal shares


def range_bounds(rows: int, replicas: int, shares: Sequence[float] = ()) -> list[int]:
    """Return the bounds of the ranges of rows of each replica, in proportion to their shares; empty: equal shares.

    >>> range_bounds(8, 3), range_bounds(8, 3, (0.375, 0.375, 0.25))
    ([0, 2, 5, 8], [0, 3, 6, 8])
    """
    if not shares:
        return [rows * part // replicas for part in range(replicas + 1)]
    return [0, *(round(rows * before) for before in itertools.accumulate(shares[:-1])), rows]


def replica_of_groups(groups: int, shares: Sequence[float]) -> list[int]:
    """Return the replica of each key group, so that each replica has its share of the groups.

    >>> replica_of_groups(8, (0.375, 0.375, 0.25))
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    bounds = range_bounds(groups, len(shares), shares)
    return [bisect.bisect_right(bounds, group) - 1 for group in range(groups)]
