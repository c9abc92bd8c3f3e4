"""M/M/k: Poisson arrivals, exponential service, k servers, one queue, first come first served. All formulas are exact.

Let a = lambda/mu, x = 1/B(k, a) from the Erlang recursion, and theta = k mu - lambda:

    P(W > 0) = C = k / (x (k - a) + a)
    W | W > 0  is exponential with rate theta
    E[T]   = 1/mu + C/theta                     (DRS eq. 1-3)
    Var[T] = 1/mu^2 + C (2 - C) / theta^2       (W and the service are independent)
    P(T > t) = (1 - C) e^(-mu t) + C P(Exp(theta) + Exp(mu) > t)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from penstock.models.queueing.erlang import delay_probability, erlang_c, inverse_loss
from penstock.models.queueing.errors import (
    UnstableError,
    checked_load,
    count,
    counted,
    distinguishable,
    not_negative,
    service_rate,
)
from penstock.models.queueing.station import LatencyMoments, quantile_s

# 3 rows/s on 3 servers of 1 row/s each are unstable, even if 0.3/0.1 rounds to 2.9999999999999996.
_ROUNDING = 1e-12


def least_stable_servers(offered_load: float) -> int:
    """Return the smallest whole number above the offered load.

    >>> least_stable_servers(2.5), least_stable_servers(0.3 / 0.1), least_stable_servers(0.0)
    (3, 4, 1)
    """
    return math.floor(offered_load * (1.0 + _ROUNDING)) + 1


def check_stable(arrival_per_s: float, service_per_s: float, servers: int) -> None:
    """Raise an UnstableError if the servers do not sustain the arrival rate."""
    needed = least_stable_servers(arrival_per_s / service_per_s)
    if count("the number of servers", servers) < needed:
        arriving, served = distinguishable(arrival_per_s, servers * service_per_s)
        verb = "serves" if servers == 1 else "serve"
        raise UnstableError(
            f"A station receives {arriving} rows/s but {counted(servers, 'server')} {verb} {served}; "
            f"it needs at least {needed}."
        )


def wait_drops_s(arrival_per_s: float, service_per_s: float, servers: int, factor: float = 1.0) -> Iterator[float]:
    """Yield `factor` times E[W](k) - E[W](k+1) for k = servers, servers + 1, ...

    E[W](k) = C/theta = k / ((x (k - a) + a) (k - a)) / mu. The loop uses plain floats and no calls, because planners
    spend much of their time here.
    """
    if arrival_per_s == 0 or factor == 0:
        yield from repeat(0.0)
    a = arrival_per_s / service_per_s
    scale_s = factor / service_per_s
    x = inverse_loss(servers, a)
    k, d, per_load = float(servers), servers - a, 1.0 / a
    wait = scale_s * k / ((x * d + a) * d)
    while True:
        k += 1.0
        d += 1.0
        x = 1.0 + x * k * per_load
        shorter = scale_s * k / ((x * d + a) * d)
        yield wait - shorter
        wait = shorter


def delays(offered_load: float, servers: int) -> Iterator[tuple[int, float]]:
    """Yield (k, P(W > 0)) for k = servers, servers + 1, ..."""
    k = servers
    x = inverse_loss(k, offered_load) if offered_load else math.inf
    while True:
        yield k, delay_probability(k, offered_load, x) if offered_load else 0.0
        k += 1
        if offered_load:
            x = 1.0 + x * k / offered_load


@dataclass(frozen=True, slots=True, kw_only=True)
class MMk:
    """An M/M/k station.

    >>> queue = MMk(arrival_per_s=2.0, service_per_s=1.0)
    >>> round(queue.mean_s(3), 4), queue.least_stable()
    (1.4444, 3)
    """

    arrival_per_s: float
    service_per_s: float

    def __post_init__(self) -> None:
        not_negative("the arrival rate (rows/s)", self.arrival_per_s)
        service_rate(self.service_per_s)
        checked_load(self.arrival_per_s / self.service_per_s)

    def at_rate(self, arrival_per_s: float) -> MMk:
        return MMk(arrival_per_s=arrival_per_s, service_per_s=self.service_per_s)

    def least_stable(self) -> int:
        return least_stable_servers(self.arrival_per_s / self.service_per_s)

    def capacity_per_s(self, servers: int) -> float:
        return servers * self.service_per_s

    def drops_s(self, servers: int) -> Iterator[float]:
        return wait_drops_s(self.arrival_per_s, self.service_per_s, servers)

    def moments(self, servers: int) -> Iterator[LatencyMoments]:
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        service_s = 1.0 / self.service_per_s
        for k, delayed in delays(self.arrival_per_s / self.service_per_s, servers):
            theta = k * self.service_per_s - self.arrival_per_s
            waited = delayed * (2.0 - delayed) / theta**2
            yield LatencyMoments(service_s + delayed / theta, service_s**2 + waited, waited)

    def mean_s(self, servers: int) -> float:
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        a = self.arrival_per_s / self.service_per_s
        if a == 0.0:
            return 1.0 / self.service_per_s
        delayed = delay_probability(servers, a, inverse_loss(servers, a))
        return (1.0 + delayed / (servers - a)) / self.service_per_s

    def floor_s(self) -> float:
        return 1.0 / self.service_per_s

    def variance_s2(self, servers: int) -> float:
        return next(self.moments(servers)).variance_s2

    def miss_probability(self, servers: int, deadline_s: float) -> float:
        """Return P(T > deadline).

        >>> round(MMk(arrival_per_s=0.5, service_per_s=1.0).miss_probability(1, 2.0), 6) == round(math.exp(-1), 6)
        True
        """
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        return self._survival(servers, erlang_c(servers, self.arrival_per_s / self.service_per_s), deadline_s)

    def quantile_s(self, servers: int, probability: float) -> float:
        """Return the latency that a row does not exceed with this probability."""
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        delayed = erlang_c(servers, self.arrival_per_s / self.service_per_s)
        return quantile_s(lambda t: self._survival(servers, delayed, t), probability, 1.0 / self.service_per_s)

    def _survival(self, servers: int, delayed: float, t: float) -> float:
        if t <= 0:
            return 1.0
        mu, theta = self.service_per_s, servers * self.service_per_s - self.arrival_per_s
        # Exp(theta) + Exp(mu): (high e^(-low t) - low e^(-high t)) / (high - low), without cancellation if
        # both rates are close.
        low, high = min(mu, theta), max(mu, theta)
        y = (high - low) * t
        both = math.exp(-low * t) * (1.0 + low * t * (-math.expm1(-y) / y if y else 1.0))
        return (1.0 - delayed) * math.exp(-mu * t) + delayed * both
