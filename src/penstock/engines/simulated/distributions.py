"""Distributions: of service times, times between arrivals, batch sizes and rows out. Plain values, JSON in and out.

As a count (a batch size, rows out for a row in) a draw x means floor(x) rows, and one more with the probability of its
fraction, so that the mean stays what it was: `Fixed(value=0.3)` keeps 3 rows of 10.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from penstock.dataflow.errors import PenstockError


class BehaviourError(PenstockError):
    """A behaviour, a cluster or a distribution that cannot be."""


class Code(NamedTuple):
    """A distribution as the compiled loops read it. `kind` is a number of draws.py."""

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
        _not_negative("the value", self.value)

    @property
    def mean(self) -> float:
        return self.value

    @property
    def scv(self) -> float:
        return 0.0

    def code(self) -> Code:
        return Code(FIXED, self.value, 0.0, 0.0)


class Exponential(_Value, frozen=True, tag="exponential"):
    mean: float

    def __post_init__(self) -> None:
        _not_negative("the mean", self.mean)

    @property
    def scv(self) -> float:
        return 1.0

    def code(self) -> Code:
        return Code(EXPONENTIAL, self.mean, 0.0, 0.0)


class Gamma(_Value, frozen=True, tag="gamma"):
    """An SCV of 1/m is the sum of m exponentials: Erlang's."""

    mean: float
    scv: float

    def __post_init__(self) -> None:
        _not_negative("the mean", self.mean)
        _positive("the squared coefficient of variation", self.scv)

    def code(self) -> Code:
        return Code(GAMMA, 1.0 / self.scv, self.mean * self.scv, 0.0)


def erlang(*, mean: float, phases: int) -> Gamma:
    """
    >>> erlang(mean=2.0, phases=4).scv
    0.25
    """
    return Gamma(mean=mean, scv=1.0 / phases)


class Hyperexponential(_Value, frozen=True, tag="hyperexponential"):
    """Of two exponentials with balanced means, p m1 = (1 - p) m2: bursty, with an SCV of 1 or more.

    p = (1 + sqrt((scv - 1) / (scv + 1))) / 2,   m1 = mean / (2 p),   m2 = mean / (2 (1 - p))
    """

    mean: float
    scv: float

    def __post_init__(self) -> None:
        _not_negative("the mean", self.mean)
        if not (math.isfinite(self.scv) and self.scv >= 1):
            raise BehaviourError(f"a hyperexponential has an SCV of 1 or more, not {self.scv}; below 1 use gamma")

    def code(self) -> Code:
        p = (1.0 + math.sqrt((self.scv - 1.0) / (self.scv + 1.0))) / 2.0
        return Code(HYPEREXPONENTIAL, p, self.mean / (2.0 * p), self.mean / (2.0 * (1.0 - p)))


class Lognormal(_Value, frozen=True, tag="lognormal"):
    mean: float
    scv: float

    def __post_init__(self) -> None:
        _positive("the mean", self.mean)
        _positive("the squared coefficient of variation", self.scv)

    def code(self) -> Code:
        sigma2 = math.log1p(self.scv)
        return Code(LOGNORMAL, math.log(self.mean) - sigma2 / 2.0, math.sqrt(sigma2), 0.0)


class Uniform(_Value, frozen=True, tag="uniform"):
    low: float
    high: float

    def __post_init__(self) -> None:
        _not_negative("the low end", self.low)
        if not (math.isfinite(self.high) and self.high >= self.low):
            raise BehaviourError(f"a uniform distribution from {self.low} to {self.high}; its high end comes second")

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2.0

    @property
    def scv(self) -> float:
        return (self.high - self.low) ** 2 / 12.0 / self.mean**2 if self.mean else 0.0

    def code(self) -> Code:
        return Code(UNIFORM, self.low, self.high, 0.0)


class Empirical(_Value, frozen=True, tag="empirical"):
    """One of the values seen, each as likely as the other."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise BehaviourError("an empirical distribution without values; give at least one")
        for value in self.values:
            _not_negative("a value", value)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def scv(self) -> float:
        mean = self.mean
        return math.fsum((value - mean) ** 2 for value in self.values) / len(self.values) / mean**2 if mean else 0.0

    def code(self) -> Code:
        return Code(EMPIRICAL, 0.0, 0.0, 0.0, self.values)


class Poisson(_Value, frozen=True, tag="poisson"):
    """For counts."""

    mean: float

    def __post_init__(self) -> None:
        _not_negative("the mean", self.mean)

    @property
    def scv(self) -> float:
        return 1.0 / self.mean if self.mean else 0.0

    def code(self) -> Code:
        return Code(POISSON, self.mean, 0.0, 0.0)


class Geometric(_Value, frozen=True, tag="geometric"):
    """For counts: 1, 2, 3, ... with this mean."""

    mean: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean >= 1):
            raise BehaviourError(f"a geometric distribution counts from 1, so its mean is 1 or more, not {self.mean}")

    @property
    def scv(self) -> float:
        return 1.0 - 1.0 / self.mean

    def code(self) -> Code:
        return Code(GEOMETRIC, self.mean, 0.0, 0.0)


Distribution = Fixed | Exponential | Gamma | Hyperexponential | Lognormal | Uniform | Empirical | Poisson | Geometric


def count_variance(distribution: Distribution) -> float:
    """Of a draw taken as a count. Exact for whole values and for `Fixed`; else f (1 - f) of a fraction is taken as 1/6,
    its mean over fractions that are spread evenly, or as the mean of the draws where that is less: it is no more."""
    variance = distribution.scv * distribution.mean**2
    if isinstance(distribution, Poisson | Geometric):
        return variance
    if isinstance(distribution, Fixed):
        fraction = distribution.value % 1.0
        return fraction * (1.0 - fraction)
    if isinstance(distribution, Empirical):
        return variance + math.fsum((v % 1.0) * (1.0 - v % 1.0) for v in distribution.values) / len(distribution.values)
    return variance + min(1.0 / 6.0, distribution.mean)


def _not_negative(what: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise BehaviourError(f"{what} of a distribution is {value}; it must be a finite number, 0 or more")


def _positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BehaviourError(f"{what} of a distribution is {value}; it must be a finite number above 0")
