"""The latency of an external row in the whole network: mean, variance, quantiles and deadline misses.

    E[T]   = sum_i visits_i E[T_i]                              (DRS eq. 4: exact in a Jackson network)
    Var[T] = sum_i visits_i Var[T_i] + pairs_i Var[W_i] + m^T Cov(visits) m,    m_i = E[T_i]

Two approximations are made. First, latencies at stations are independent of each other and of the route. In a Jackson
network this is true along a path without overtaking. The exceptions are rows that originate from one row and reach a
station together, which share their wait W_i, and repeated visits, which find nearly the same queue (see `visits`).
Second, T has the gamma distribution with that mean and variance. This is exact for M/M/1. For the tested chains of
M/M/k it is within 1% at p95, 2% at p99 and 4% at p99.9 of the convolution of the stations. In loops it is within 5% at
p95, and 5% to 8% too low at p99: repeated waits make T more skewed than a gamma distribution with these moments. It is
10% (gain 2) to 25% (gain 6) too low if rows fan out into batches, because two moments describe their arrivals badly. It
is 5% to 20% too low if the SCV of the arrivals is 4.

T is the sum over all rows derived from one external row, like in DRS. If these are served in parallel, the last of them
leaves earlier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, gammaincinv

from penstock.models.network.visits import Visits
from penstock.models.queueing.errors import not_negative
from penstock.models.queueing.errors import probability as checked_probability
from penstock.models.queueing.station import LatencyMoments


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLatency:
    """Latency of an external row, gamma distributed with this mean and variance.

    >>> alone = NetworkLatency(mean_s=2.0, variance_s2=4.0)     # M/M/1: exponential
    >>> round(alone.quantile_s(0.95), 4), round(alone.miss_probability(2.0), 4)
    (5.9915, 0.3679)
    """

    mean_s: float
    variance_s2: float

    def quantile_s(self, probability: float) -> float:
        checked_probability("a quantile", probability)
        if self.variance_s2 <= 1e-18 * self.mean_s**2:
            return self.mean_s
        shape = self.mean_s**2 / self.variance_s2
        return float(gammaincinv(shape, probability)) * self.variance_s2 / self.mean_s

    def miss_probability(self, deadline_s: float) -> float:
        """Return P(T > deadline)."""
        not_negative("a deadline (s)", deadline_s)
        if self.variance_s2 <= 1e-18 * self.mean_s**2:
            return float(self.mean_s > deadline_s)
        return float(gammaincc(self.mean_s**2 / self.variance_s2, deadline_s * self.mean_s / self.variance_s2))


def network_latency(visits: Visits, moments: list[LatencyMoments]) -> NetworkLatency:
    """Return the latency of an external row; `moments` are in the order of `visits`."""
    means, variances, waits = np.array(moments).T
    spread = max(0.0, float(means @ visits.covariance @ means))
    variance = float(visits.mean @ variances) + float(visits.equal_waits @ waits) + spread
    return NetworkLatency(mean_s=float(visits.mean @ means), variance_s2=variance)
