"""Distributions of service times, times between arrivals, batch sizes and selectivities. Values with a JSON form.

A draw x that is used as a count (rows) is rounded at random: up with the probability of its fraction, else down. This
keeps the mean: `Fixed(value=0.3)` as a selectivity keeps 3 of 10 rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from penstock.dataflow.errors import PenstockError

LARGEST = 1e12  # limit of numbers in a behaviour: sums and squares stay finite


class BehaviourError(PenstockError):
    """A behaviour, cluster or distribution is invalid."""


class DistributionCode(NamedTuple):
    """A distribution as the compiled loops read it. `kind` is one of the constants below."""

    kind: int
    a: float
    b: float
    c: float
    table: tuple[float, ...] = ()


FIXED, EXPONENTIAL, GAMMA, HYPEREXPONENTIAL, LOGNORMAL, UNIFORM, EMPIRICAL, POISSON, GEOMETRIC = range(9)


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Fixed(_Value, frozen=True, tag="fixed"):
    value: float

    def __post_init__(self) -> None:
        _not_negative("value", self.value)

    @property
    def mean(self) -> float:
        return self.value

    @property
    def scv(self) -> float:
        return 0.0

    def code(self) -> DistributionCode:
        return DistributionCode(FIXED, self.value, 0.0, 0.0)


class Exponential(_Value, frozen=True, tag="exponential"):
    mean: float

    def __post_init__(self) -> None:
        _not_negative("mean", self.mean)

    @property
    def scv(self) -> float:
        return 1.0

    def code(self) -> DistributionCode:
        return DistributionCode(EXPONENTIAL, self.mean, 0.0, 0.0)


class Gamma(_Value, frozen=True, tag="gamma"):
    """A gamma distribution. It is the Erlang distribution of m phases if scv = 1/m."""

    mean: float
    scv: float

    def __post_init__(self) -> None:
        _not_negative("mean", self.mean)
        _positive("scv", self.scv)

    def code(self) -> DistributionCode:
        return DistributionCode(GAMMA, 1.0 / self.scv, self.mean * self.scv, 0.0)


class Hyperexponential(_Value, frozen=True, tag="hyperexponential"):
    """A mixture of two exponentials with balanced means, p m1 = (1 - p) m2. Its SCV is 1 or more.

    p = (1 + sqrt((scv - 1) / (scv + 1))) / 2,   m1 = mean / (2 p),   m2 = mean / (2 (1 - p))
    """

    mean: float
    scv: float

    def __post_init__(self) -> None:
        _not_negative("mean", self.mean)
        if not 1 <= self.scv <= LARGEST:
            raise BehaviourError(
                f"The SCV of a hyperexponential distribution is {self.scv}; it must be a number from 1 to "
                f"{LARGEST:g}. Use gamma below 1."
            )

    def code(self) -> DistributionCode:
        p = (1.0 + math.sqrt((self.scv - 1.0) / (self.scv + 1.0))) / 2.0
        return DistributionCode(HYPEREXPONENTIAL, p, self.mean / (2.0 * p), self.mean / (2.0 * (1.0 - p)))


class Lognormal(_Value, frozen=True, tag="lognormal"):
    mean: float
    scv: float

    def __post_init__(self) -> None:
        _positive("mean", self.mean)
        _positive("scv", self.scv)

    def code(self) -> DistributionCode:
        sigma2 = math.log1p(self.scv)
        return DistributionCode(LOGNORMAL, math.log(self.mean) - sigma2 / 2.0, math.sqrt(sigma2), 0.0)


class Uniform(_Value, frozen=True, tag="uniform"):
    low: float
    high: float

    def __post_init__(self) -> None:
        _not_negative("low", self.low)
        if not (math.isfinite(self.high) and self.high >= self.low):
            raise BehaviourError(
                f"A uniform distribution has low={self.low} and high={self.high}; 'high' must not be below 'low'."
            )

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2.0

    @property
    def scv(self) -> float:
        return (self.high - self.low) ** 2 / 12.0 / self.mean**2 if self.mean else 0.0

    def code(self) -> DistributionCode:
        return DistributionCode(UNIFORM, self.low, self.high, 0.0)


class Empirical(_Value, frozen=True, tag="empirical"):
    """One of the given values, all equally likely."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise BehaviourError("An empirical distribution has no values; give at least one.")
        for value in self.values:
            _not_negative("value", value)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def scv(self) -> float:
        mean = self.mean
        return math.fsum((value - mean) ** 2 for value in self.values) / len(self.values) / mean**2 if mean else 0.0

    def code(self) -> DistributionCode:
        return DistributionCode(EMPIRICAL, 0.0, 0.0, 0.0, self.values)


class Poisson(_Value, frozen=True, tag="poisson"):
    """A Poisson distribution, for counts."""

    mean: float

    def __post_init__(self) -> None:
        _not_negative("mean", self.mean)

    @property
    def scv(self) -> float:
        return 1.0 / self.mean if self.mean else 0.0

    def code(self) -> DistributionCode:
        return DistributionCode(POISSON, self.mean, 0.0, 0.0)


class Geometric(_Value, frozen=True, tag="geometric"):
    """A geometric distribution over 1, 2, 3, ..., for counts."""

    mean: float

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= LARGEST:
            raise BehaviourError(
                f"The mean of a geometric distribution is {self.mean}; it must be a number from 1 to {LARGEST:g}."
            )

    @property
    def scv(self) -> float:
        return 1.0 - 1.0 / self.mean

    def code(self) -> DistributionCode:
        return DistributionCode(GEOMETRIC, self.mean, 0.0, 0.0)


Distribution = Fixed | Exponential | Gamma | Hyperexponential | Lognormal | Uniform | Empirical | Poisson | Geometric


def count_variance(distribution: Distribution) -> float:
    """Return the variance of a draw that is rounded to a count.

    It is exact for `Fixed`, `Empirical`, `Poisson` and `Geometric`. Otherwise rounding adds f (1 - f) for a fraction f.
    Its mean over evenly spread fractions is 1/6, and it never exceeds the mean of the draws.
    """
    variance = distribution.scv * distribution.mean**2
    if isinstance(distribution, Poisson | Geometric):
        return variance
    if isinstance(distribution, Fixed):
        fraction = distribution.value % 1.0
        return fraction * (1.0 - fraction)
    if isinstance(distribution, Empirical):
        return variance + math.fsum((v % 1.0) * (1.0 - v % 1.0) for v in distribution.values) / len(distribution.values)
    return variance + min(1.0 / 6.0, distribution.mean)


def _not_negative(field: str, value: float) -> None:
    if not 0 <= value <= LARGEST:
        raise BehaviourError(f"'{field}' of a distribution is {value}; it must be a number from 0 to {LARGEST:g}.")


def _positive(field: str, value: float) -> None:
    if not 0 < value <= LARGEST:
        raise BehaviourError(f"'{field}' of a distribution is {value}; it must be above 0 and at most {LARGEST:g}.")
