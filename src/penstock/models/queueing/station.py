"""What every station model offers to the planners: a mean and a variance of the latency for each number of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from scipy.optimize import brentq

from penstock.models.queueing.errors import probability as checked_probability


class LatencyMoments(NamedTuple):
    """Of the latency (waiting and service) of one row at one station."""

    mean_s: float
    variance_s2: float
    wait_variance_s2: float  # the part of it that rows which arrive together share


class StationModel(Protocol):
    """One operator under one load, for any number of servers (processors, replicas).

    E[T](k) is decreasing and convex in k from `least_stable()` on, perhaps only up to a finite best k after which it
    rises. That is all that the greedy of the processor planner needs, so any such model may be plugged in.
    """

    @property
    def arrival_per_s(self) -> float: ...

    def least_stable(self) -> int | None:
        """The fewest servers that keep up; None if no number does."""
        ...

    def capacity_per_s(self, servers: int) -> float:
        """The arrival rate at which `servers` servers are just saturated."""
        ...

    def moments(self, servers: int) -> Iterator[LatencyMoments]:
        """LatencyMoments with `servers` servers (stable), then with one more, and so on without end: O(1) a step."""
        ...

    def mean_s(self, servers: int) -> float:
        """E[T] with `servers` servers (stable)."""
        ...

    def floor_s(self) -> float:
        """What E[T] stays above, however many servers there are."""
        ...

    def drops_s(self, servers: int) -> Iterator[float]:
        """E[T](k) - E[T](k+1) for k = servers (stable), servers + 1, ... without end: O(1) a step."""
        ...

    def at_rate(self, arrival_per_s: float) -> StationModel:
        """The same operator under another load."""
        ...


def quantile_s(survival: Callable[[float], float], probability: float, scale_s: float) -> float:
    """The t with P(T > t) = 1 - probability, for a continuous decreasing survival function; 0 if there is mass there.

    `scale_s` is where to start looking: the mean will do.
    """
    miss = 1.0 - checked_probability("a quantile", probability)
    if survival(0.0) <= miss:
        return 0.0
    high = scale_s
    while survival(high) > miss:
        high *= 2.0
    return float(brentq(lambda t: survival(t) - miss, 0.0, high, xtol=1e-13 * scale_s, rtol=1e-12))
