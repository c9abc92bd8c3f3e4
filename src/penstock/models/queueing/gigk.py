"""GI/G/k: renewal arrivals and general service, given by means and squared coefficients of variation (SCV).

All formulas are approximations, except if both SCVs are 1, which is M/M/k.

    E[W] = phi (ca2 + cs2)/2 E[W](M/M/k)

- "drs": phi = 1 (DRS eq. 5). It is accurate in heavy traffic and crude at low variability. For 3 servers at 60%
  utilisation and SCVs of 0.25 it gives twice the simulated wait; for M/D/k it is up to 20% too low.
- "whitt" (the default): phi(rho, ca2, cs2, k) of W. Whitt, "Approximations for the GI/G/m queue", Production and
  Operations Management 2(2), 1993. It interpolates between approximations of M/G/k, D/M/k and GI/M/k. In the example
  above the wait is 1.4 times too high, which is 1.4% of the latency; M/G/1 is within 2% of the exact latency.

P(W > 0), from heavy-traffic and many-server limits, and the SCV cD2 of the delay of waiting rows are from the same
paper. Two assumptions are not: this delay and the service time each have the gamma distribution with their two moments,
which gives quantiles and deadline misses, and the mean delay of waiting rows does not exceed the bound in `_waits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc, gammaincinv, log_ndtr, ndtr

from penstock.models.queueing.erlang import inverse_loss
from penstock.models.queueing.errors import ModelError, checked_load, not_negative, scv, service_rate
from penstock.models.queueing.mmk import check_stable, delays, least_stable_servers, wait_drops_s
from penstock.models.queueing.station import LatencyMoments, quantile_s

Approximation = Literal["whitt", "drs"]


def whitt_factor(rho: float, ca2: float, cs2: float, k: int) -> float:
    """Return phi of Whitt 1993, the factor of E[W] in DRS eq. 5. It is 1 for M/M/k.

    >>> whitt_factor(0.8, 1.0, 1.0, 4)
    1.0
    """
    gamma = min(_MAX_GAMMA, (1.0 - rho) * (k - 1) * (math.sqrt(4.0 + 5.0 * k) - 2.0) / (16.0 * k * rho))
    phi1 = 1.0 + gamma  # M/D/k
    phi3 = (1.0 - 4.0 * gamma) * math.exp(-2.0 * (1.0 - rho) / (3.0 * rho))  # D/M/k
    parts = _phi_weights(ca2, cs2)
    psi = math.pow(min(1.0, (phi1 + phi3) / 2.0), parts.power)
    return parts.phi1 * phi1 + parts.phi3 * phi3 + parts.psi * psi


_MAX_GAMMA = 0.24


class _PhiWeights(NamedTuple):
    """Coefficients of phi1, phi3 and psi in phi; psi is raised to `power`."""

    phi1: float
    phi3: float
    psi: float
    power: float


@lru_cache(maxsize=1024)
def _phi_weights(ca2: float, cs2: float) -> _PhiWeights:
    power = max(0.0, 2.0 - ca2 - cs2)
    if ca2 > cs2:
        whole = 4.0 * ca2 - 3.0 * cs2
        return _PhiWeights(4.0 * (ca2 - cs2) / whole, 0.0, cs2 / whole, power)
    if ca2 < cs2:
        whole = 2.0 * (ca2 + cs2)
        return _PhiWeights(0.0, (cs2 - ca2) / whole, (cs2 + 3.0 * ca2) / whole, power)
    return _PhiWeights(0.0, 0.0, 1.0, power)


def whitt_delay_probability(rho: float, ca2: float, cs2: float, k: int, mmk_delay: float) -> float:
    """Return P(W > 0) of Whitt 1993 from that of M/M/k. It is exact if both SCVs are 1."""
    if ca2 + cs2 == 0.0 or mmk_delay == 0.0:
        return 0.0
    beta = (1.0 - rho) * math.sqrt(k)

    def scaled(
        argument: float,
    ) -> float:  # min(1, P (1 - Phi(argument)) / (1 - Phi(beta))), in logs because both underflow
        return math.exp(min(0.0, math.log(mmk_delay) + float(log_ndtr(-argument) - log_ndtr(-beta))))

    pi4 = scaled((1.0 + cs2) * beta / (ca2 + cs2))
    pi5 = scaled(2.0 * beta / (1.0 + ca2))
    pi1 = rho**2 * pi4 + (1.0 - rho**2) * pi5
    if k <= 6 or ca2 >= 1.0:
        return pi1
    z = (ca2 + cs2) / (1.0 + cs2)
    gamma = (k - k * rho - 0.5) / math.sqrt(k * rho * z)
    if gamma <= 0.5:
        return pi1
    pi2 = ca2 * pi1 + (1.0 - ca2) * float(ndtr(-gamma))
    share = min(1.0, 2.0 * (gamma - 0.5))  # 0 at gamma = 0.5, 1 from gamma = 1 on
    weight = 1.0 if share == 1.0 else share * (1.0 - ca2)
    return weight * pi2 + (1.0 - weight) * pi1


class _Wait(NamedTuple):
    """The waiting time W of a row."""

    delayed: float  # P(W > 0)
    mean_s: float  # E[W | W > 0]
    scv: float  # SCV of W | W > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GIGk:
    """A GI/G/k station.

    >>> regular = GIGk(arrival_per_s=2.0, service_per_s=1.0, arrival_scv=0.0, service_scv=1.0)
    >>> round(regular.mean_s(3), 3), round(GIGk(arrival_per_s=2.0, service_per_s=1.0).mean_s(3), 3)
    (1.154, 1.444)
    """

    arrival_per_s: float
    service_per_s: float
    arrival_scv: float = 1.0
    service_scv: float = 1.0
    approximation: Approximation = "whitt"

    def __post_init__(self) -> None:
        not_negative("the arrival rate (rows/s)", self.arrival_per_s)
        service_rate(self.service_per_s)
        checked_load(self.arrival_per_s / self.service_per_s)
        scv("the SCV of the times between arrivals", self.arrival_scv)
        scv("the SCV of the service times", self.service_scv)
        if self.approximation not in ("whitt", "drs"):
            raise ModelError(f"The approximation is '{self.approximation}'. It must be 'whitt' or 'drs'.")

    def at_rate(self, arrival_per_s: float) -> GIGk:
        return GIGk(
            arrival_per_s=arrival_per_s,
            service_per_s=self.service_per_s,
            arrival_scv=self.arrival_scv,
            service_scv=self.service_scv,
            approximation=self.approximation,
        )

    def least_stable(self) -> int:
        return least_stable_servers(self.arrival_per_s / self.service_per_s)

    def capacity_per_s(self, servers: int) -> float:
        return servers * self.service_per_s

    def drops_s(self, servers: int) -> Iterator[float]:
        c2 = (self.arrival_scv + self.service_scv) / 2.0
        phi_is_1 = self.arrival_scv == self.service_scv and c2 >= 1.0
        if self.approximation == "drs" or phi_is_1 or c2 == 0.0 or self.arrival_per_s == 0.0:
            return wait_drops_s(self.arrival_per_s, self.service_per_s, servers, factor=c2)
        return self._whitt_drops_s(servers)

    def _whitt_drops_s(self, servers: int) -> Iterator[float]:
        """Yield the differences of `_waits_s` without function calls, because planners spend much of their time here.

        a = k rho is constant, so the exponential in phi3 shrinks by the same factor per step. gamma reaches its maximum
        after a few steps.
        """
        a, mu, sqrt = self.arrival_per_s / self.service_per_s, self.service_per_s, math.sqrt
        to_phi1, to_phi3, to_psi, power = _phi_weights(self.arrival_scv, self.service_scv)
        scale_s = (self.arrival_scv + self.service_scv) / 2.0 / mu
        k, d, per_load = float(servers), servers - a, 1.0 / a
        x = inverse_loss(servers, a)
        e, e_factor = math.exp(-2.0 * d / (3.0 * a)), math.exp(-2.0 / (3.0 * a))
        wait = scale_s * k / ((x * d + a) * d) * whitt_factor(a / k, self.arrival_scv, self.service_scv, servers)
        gamma, full = 0.0, 16.0 * a * _MAX_GAMMA
        while gamma < _MAX_GAMMA:
            k += 1.0
            d += 1.0
            x = 1.0 + x * k * per_load
            e *= e_factor
            reached = d * (k - 1.0) * (sqrt(4.0 + 5.0 * k) - 2.0) / k
            gamma = _MAX_GAMMA if reached >= full else reached / (16.0 * a)
            phi1, phi3 = 1.0 + gamma, (1.0 - 4.0 * gamma) * e
            psi = min(1.0, (phi1 + phi3) / 2.0) ** power
            shorter = scale_s * k / ((x * d + a) * d) * (to_phi1 * phi1 + to_phi3 * phi3 + to_psi * psi)
            yield wait - shorter
            wait = shorter
        half1, half3 = (1.0 + gamma) / 2.0, (1.0 - 4.0 * gamma) / 2.0 * e
        scale_s /= a
        fixed_s, to_half3_s, to_psi_s = scale_s * to_phi1 * 2.0 * half1, scale_s * to_phi3 * 2.0, scale_s * to_psi
        k, d = k * per_load, d * per_load
        while True:
            k += per_load
            d += per_load
            x = 1.0 + x * k
            half3 *= e_factor
            shorter = k / (x * d * d + d) * (fixed_s + to_half3_s * half3 + to_psi_s * (half1 + half3) ** power)
            yield wait - shorter
            wait = shorter

    def _waits_s(self, servers: int) -> Iterator[float]:
        """Yield E[W] with `servers`, `servers` + 1, ... servers."""
        a, ca2, cs2 = self.arrival_per_s / self.service_per_s, self.arrival_scv, self.service_scv
        scale_s = (ca2 + cs2) / 2.0 / self.service_per_s
        refined = self.approximation == "whitt" and a > 0 and scale_s > 0
        for k, delayed in delays(a, servers):
            wait = scale_s * delayed / (k - a)
            yield wait * whitt_factor(a / k, ca2, cs2, k) if refined else wait

    def _waits(self, servers: int) -> Iterator[_Wait]:
        a, ca2, cs2 = self.arrival_per_s / self.service_per_s, self.arrival_scv, self.service_scv
        for (k, mmk_delay), mean in zip(delays(a, servers), self._waits_s(servers), strict=False):
            rho = a / k
            delayed = whitt_delay_probability(rho, ca2, cs2, k, mmk_delay) if rho else 0.0
            # At low variability P(W > 0) falls much faster than E[W], so the mean delay of waiting rows would be too
            # long. Bound it by that of M/M/k, times (ca2 + cs2)/2 if the variability is higher.
            max_delay_s = max(1.0, (ca2 + cs2) / 2.0) / (self.service_per_s * (k - a))
            delayed = max(delayed, mean / max_delay_s)
            # Third moment of the service time over its mean cubed, from its SCV (as in QNA, Whitt 1983).
            third = 3.0 * cs2 * (1.0 + cs2) if cs2 >= 1.0 else (2.0 * cs2 + 1.0) * (cs2 + 1.0)
            delay_scv = max(0.0, 2.0 * rho - 1.0 + 4.0 * (1.0 - rho) * third / (3.0 * (cs2 + 1.0) ** 2))
            yield _Wait(delayed, mean / delayed, delay_scv) if delayed > 0.0 else _Wait(0.0, 0.0, 0.0)

    def moments(self, servers: int) -> Iterator[LatencyMoments]:
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        service_s = 1.0 / self.service_per_s
        for wait, mean in zip(self._waits(servers), self._waits_s(servers), strict=False):
            # E[W^2] = P E[D]^2 (1 + cD2)
            waited = max(0.0, wait.delayed * wait.mean_s**2 * (1.0 + wait.scv) - (wait.delayed * wait.mean_s) ** 2)
            yield LatencyMoments(service_s + mean, self.service_scv * service_s**2 + waited, waited)

    def mean_s(self, servers: int) -> float:
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        return 1.0 / self.service_per_s + next(self._waits_s(servers))

    def floor_s(self) -> float:
        return 1.0 / self.service_per_s

    def variance_s2(self, servers: int) -> float:
        return next(self.moments(servers)).variance_s2

    def miss_probability(self, servers: int, deadline_s: float) -> float:
        """Return P(T > deadline)."""
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        return self._survival(next(self._waits(servers)), deadline_s)

    def quantile_s(self, servers: int, probability: float) -> float:
        """Return the latency that a row does not exceed with this probability."""
        check_stable(self.arrival_per_s, self.service_per_s, servers)
        wait = next(self._waits(servers))
        return quantile_s(lambda t: self._survival(wait, t), probability, 1.0 / self.service_per_s)

    def _survival(self, wait: _Wait, t: float) -> float:
        """Return (1 - P) P(S > t) + P P(D + S > t) for gamma distributed delay D and service S."""
        if t <= 0:
            return 1.0
        service_s = 1.0 / self.service_per_s
        alone = float(_gamma_survival(np.array([t]), service_s, self.service_scv)[0])
        if wait.delayed == 0.0:
            return alone
        if wait.scv == 0.0:
            both = float(_gamma_survival(np.array([t - wait.mean_s]), service_s, self.service_scv)[0])
        else:
            # P(D + S > t) = P(D > t) + integral of P(S > t - D(u)) over u in [0, P(D <= t)], D(u) the
            # quantile function.
            shape, scale_s = 1.0 / wait.scv, wait.mean_s * wait.scv
            within = float(gammainc(shape, t / scale_s))
            delay_s = scale_s * gammaincinv(shape, within * _NODES)
            both = 1.0 - within + within * float(_WEIGHTS @ _gamma_survival(t - delay_s, service_s, self.service_scv))
        return (1.0 - wait.delayed) * alone + wait.delayed * both


def _gamma_survival(t: np.ndarray, mean_s: float, scv: float) -> np.ndarray:
    if scv == 0.0:
        return np.asarray(t < mean_s, dtype=float)
    return np.asarray(gammaincc(1.0 / scv, np.maximum(t, 0.0) / (mean_s * scv)))


# Gauss-Legendre on u = 1 - (1 - y)^5: most nodes are near u = 1, because long delays determine high quantiles.
_points, _weights = np.polynomial.legendre.leggauss(96)
_NODES, _WEIGHTS = 1.0 - ((1.0 - _points) / 2.0) ** 5, 5.0 * ((1.0 - _points) / 2.0) ** 4 * _weights / 2.0
