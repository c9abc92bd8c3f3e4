"""The protocol of station models: mean and variance of the latency for each number of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from scipy.optimize import brentq

from penstock.models.queueing.errors import probability as checked_probability


class LatencyMoments(NamedTuple):
    """Moments of the latency (waiting and service) of one row at one station."""

    mean_s: float
    variance_s2: float
    wait_variance_s2: float  # the part that rows which arrive together share


class StationModel(Protocol):
    """One operator under one load, for any number of servers (processors, replicas).

    E[T](k) is decreasing and convex in k from `least_stable()` on, possibly up to a finite best k after which it rises.
    The greedy processor planner needs no other property, so it works with every such model.
    """

    @property
    def arrival_per_s(self) -> float:
        """Return the arrival rate in rows per second."""
        ...

    def least_stable(self) -> int | None:
        """Return the fewest servers with a steady state; None if no number has one."""
        ...

    def capacity_per_s(self, servers: int) -> float:
        """Return the arrival rate at which `servers` servers are saturated."""
        ...

    def moments(self, servers: int) -> Iterator[LatencyMoments]:
        """Yield the moments with `servers` (stable), `servers` + 1, ... servers, in O(1) per step."""
        ...

    def mean_s(self, servers: int) -> float:
        """Return E[T] with `servers` servers; raise an UnstableError if they are too few."""
        ...

    def floor_s(self) -> float:
        """Return a lower bound of E[T] for any number of servers."""
        ...

    def drops_s(self, servers: int) -> Iterator[float]:
        """Yield E[T](k) - E[T](k+1) for k = `servers` (stable), `servers` + 1, ..., in O(1) per step."""
        ...

    def at_rate(self, arrival_per_s: float) -> StationModel:
        """Return the same operator under another load."""
        ...


def quantile_s(survival: Callable[[float], float], probability: float, scale_s: float) -> float:
    """Return the t with P(T > t) = 1 - probability, for a continuous decreasing survival function.

    The result is 0 if P(T = 0) is at least `probability`. `scale_s` is the start of the search, for example the mean.
    """
    miss = 1.0 - checked_probability("a quantile", probability)
    if survival(0.0) <= miss:
        return 0.0
    high = scale_s
    while survival(high) > miss:
        high *= 2.0
    return float(brentq(lambda t: survival(t) - miss, 0.0, high, xtol=1e-13 * scale_s, rtol=1e-12))
