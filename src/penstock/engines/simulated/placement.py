"""Placement: the slot of each replica. A strategy is one function and one line in the table `PLACEMENTS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Replicas = Sequence[tuple[str, int]]  # stations and their replicas
Placement = Callable[[Replicas, int], list[int]]  # (stations, number of slots) -> the slot of each replica in order


def even(stations: Replicas, slots: int) -> list[int]:
    """Place replicas on slots in turn, so that the numbers of replicas of two slots differ by one at most.

    >>> even([("parse", 3), ("count", 1)], slots=2)
    [0, 1, 0, 1]
    """
    return [number % slots for number in range(sum(replicas for _, replicas in stations))]


def separate(stations: Replicas, slots: int) -> list[int]:
    """Give each station slots of its own, in proportion to its replicas, if there are as many slots as stations.

    >>> separate([("parse", 3), ("count", 1)], slots=4), separate([("parse", 3), ("count", 1)], slots=2)
    ([0, 1, 2, 3], [0, 0, 0, 1])
    """
    total = sum(replicas for _, replicas in stations)
    placed: list[int] = []
    for _, replicas in stations:
        first = min(slots - 1, slots * len(placed) // total)
        own = max(1, slots * (len(placed) + replicas) // total - first)
        placed += [first + number % own for number in range(replicas)]
    return placed


PLACEMENTS: Mapping[str, Placement] = {"even": even, "separate": separate}
