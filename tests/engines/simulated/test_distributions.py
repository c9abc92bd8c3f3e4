"""The contract of distributions: every distribution passes the same checks of its moments.

The expected moments are the closed forms of textbooks, computed here from the parameters.
"""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

import msgspec
import numpy as np
import pytest
from numba import njit

from penstock.engines.simulated import (
    BehaviourError,
    Distribution,
    Empirical,
    Exponential,
    Fixed,
    Gamma,
    Geometric,
    Hyperexponential,
    Lognormal,
    Poisson,
    Uniform,
)
from penstock.engines.simulated.compiled.draws import Draws, binomial, draw, new_draws, sum_of_counts, sum_of_times

DRAWS = 20_000
MAX_ERRORS = 4.5  # standard errors


class Case(NamedTuple):
    distribution: Distribution
    mean: float
    variance: float
    fourth: float  # fourth central moment, for the standard error of the variance


def lognormal_fourth(mean: float, scv: float) -> float:
    w = 1 + scv
    return (mean**2 * scv) ** 2 * (w**4 + 2 * w**3 + 3 * w**2 - 3)


def hyperexponential_fourth(mean: float, scv: float) -> float:
    """E[(X - m)^4] from the raw moments k! (p m1^k + (1 - p) m2^k) of two exponentials with balanced means."""
    p = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
    means = ((p, mean / (2 * p)), (1 - p, mean / (2 * (1 - p))))
    raw = [sum(q * math.factorial(k) * m**k for q, m in means) for k in range(5)]
    return raw[4] - 4 * mean * raw[3] + 6 * mean**2 * raw[2] - 3 * mean**4


CASES = (
    Case(Fixed(value=0.7), 0.7, 0.0, 0.0),
    Case(Exponential(mean=0.4), 0.4, 0.16, 9 * 0.4**4),
    Case(Gamma(mean=2.0, scv=0.25), 2.0, 1.0, 3 + 6 * 0.25),
    Case(Gamma(mean=2.0, scv=3.0), 2.0, 12.0, 12.0**2 * (3 + 6 * 3.0)),
    Case(Hyperexponential(mean=0.5, scv=4.0), 0.5, 1.0, hyperexponential_fourth(0.5, 4.0)),
    Case(Lognormal(mean=0.5, scv=0.5), 0.5, 0.125, lognormal_fourth(0.5, 0.5)),
    Case(Uniform(low=0.1, high=0.9), 0.5, 0.8**2 / 12, 0.8**4 / 80),
    Case(Empirical(values=(0.0, 1.0, 1.0, 4.0)), 1.5, 2.25, (1.5**4 + 2 * 0.5**4 + 2.5**4) / 4),
    Case(Poisson(mean=3.0), 3.0, 3.0, 3.0 * (1 + 3 * 3.0)),
    Case(Poisson(mean=200.0), 200.0, 200.0, 200.0 * (1 + 3 * 200.0)),
    # p = 1/4: variance (1 - p) / p^2, kurtosis 9 + p^2 / (1 - p).
    Case(Geometric(mean=4.0), 4.0, 12.0, 12.0**2 * (9 + 0.0625 / 0.75)),
)
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.distribution))


# The loops below are not cached on disk: a cached loop would contain the draws of older sources.
@njit
def fill_with_draws(draws: Draws, result: np.ndarray) -> None:
    for i in range(len(result)):
        result[i] = draw(draws, 0, 0)


@njit
def fill_with_times(draws: Draws, n: int, result: np.ndarray) -> None:
    for i in range(len(result)):
        result[i] = sum_of_times(draws, 0, 0, n)


@njit
def fill_with_counts(draws: Draws, n: int, result: np.ndarray) -> None:
    for i in range(len(result)):
        result[i] = sum_of_counts(draws, 0, 0, n)


@njit
def fill_with_binomials(streams: np.ndarray, trials: int, p: float, result: np.ndarray) -> None:
    for i in range(len(result)):
        result[i] = binomial(streams, 0, trials, p)


def draws_of(distribution: Distribution, seed: int) -> Draws:
    return new_draws([distribution], seed=seed, streams=1)


def standard_errors(sample: np.ndarray, mean: float, variance: float, fourth: float) -> float:
    """Return by how many standard errors mean and variance are wrong (the larger one); infinity if a draw is below 0."""
    if sample.min() < 0:
        return math.inf
    if variance == 0:
        return 0.0 if np.allclose(sample, mean, rtol=1e-12) else math.inf
    of_mean = abs(sample.mean() - mean) / math.sqrt(variance / DRAWS)
    of_variance = abs(sample.var() - variance) / math.sqrt((fourth - variance**2) / DRAWS)
    return float(max(of_mean, of_variance))


def normal_fourth(variance: float) -> float:
    """The fourth moment of a count: normal, or Poisson if the count is small."""
    return 3 * variance**2 + variance


def test_every_distribution_has_a_case() -> None:
    assert {type(case.distribution) for case in CASES} == set(get_args(Distribution))


@cases
def test_declared_moments_are_the_closed_form(case: Case) -> None:
    assert case.distribution.mean == pytest.approx(case.mean)
    assert case.distribution.scv * case.distribution.mean**2 == pytest.approx(case.variance)


@cases
def test_draws_have_the_mean_and_variance(case: Case) -> None:
    sample = np.zeros(DRAWS)
    fill_with_draws(draws_of(case.distribution, 1), sample)
    assert standard_errors(sample, case.mean, case.variance, case.fourth) <= MAX_ERRORS


@pytest.mark.parametrize("n", [2, 30, 31, 1_000])
@cases
def test_a_sum_of_times_has_the_mean_and_variance(case: Case, n: int) -> None:
    sample = np.zeros(DRAWS)
    fill_with_times(draws_of(case.distribution, 2), n, sample)
    mean, variance = n * case.mean, n * case.variance
    if n <= 30:
        fourth = n * case.fourth + 3 * n * (n - 1) * case.variance**2
    else:  # large sums are drawn from a gamma distribution
        fourth = 3 * variance**2 + 6 * variance**3 / mean**2
    assert standard_errors(sample, mean, variance, fourth) <= MAX_ERRORS


@pytest.mark.parametrize("n", [1, 31, 1_000])
@cases
def test_a_sum_of_counts_keeps_the_mean(case: Case, n: int) -> None:
    """Rounding to whole rows adds at most 1/4 to the variance of each count and nothing to the mean."""
    sample = np.zeros(DRAWS)
    fill_with_counts(draws_of(case.distribution, 3), n, sample)
    assert sample.min() >= 0 and (sample == np.floor(sample)).all()
    error = abs(sample.mean() - n * case.mean)
    assert error <= MAX_ERRORS * math.sqrt(n * (case.variance + 0.25) / DRAWS)


@cases
def test_the_json_form_is_lossless(case: Case) -> None:
    encoded = msgspec.json.encode(case.distribution)
    assert msgspec.json.decode(encoded, type=Distribution) == case.distribution  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (Fixed, {"value": -1.0}, "'value' of a distribution is -1.0"),
        (Exponential, {"mean": math.nan}, "'mean' of a distribution is nan"),
        (Gamma, {"mean": 1.0, "scv": 0.0}, "'scv' of a distribution is 0.0"),
        (Hyperexponential, {"mean": 1.0, "scv": 0.5}, "must be a number from 1 .* Use gamma"),
        (Lognormal, {"mean": 0.0, "scv": 1.0}, "'mean' of a distribution is 0.0"),
        (Uniform, {"low": 2.0, "high": 1.0}, "'high' must not be below 'low'"),
        (Empirical, {"values": ()}, "has no values"),
        (Poisson, {"mean": math.inf}, "'mean' of a distribution is inf"),
        (Geometric, {"mean": 0.5}, "must be a number from 1 to"),
    ],
)
def test_invalid_parameters_are_refused(kind: type, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(BehaviourError, match=message):
        kind(**parameters)


@pytest.mark.parametrize("n", [1, 31, 1_000])
@pytest.mark.parametrize(
    ("distribution", "mean", "variance"),
    [
        (Fixed(value=0.001), 0.001, 0.001 * 0.999),
        (Fixed(value=2.999), 2.999, 0.001 * 0.999),
        (Poisson(mean=0.01), 0.01, 0.01),
        (Geometric(mean=1.01), 1.01, 0.01 * 1.01),
        (Empirical(values=(1.0,) * 99 + (0.0,)), 0.99, 0.01 * 0.99),
        # x < 1 in almost all cases: then a count is 1 with probability x, so its variance is m (1 - m).
        (Exponential(mean=0.01), 0.01, 0.01 * 0.99),
    ],
)
def test_sums_of_rare_counts_have_the_mean_and_variance(
    distribution: Distribution, mean: float, variance: float, n: int
) -> None:
    sample = np.zeros(DRAWS)
    fill_with_counts(draws_of(distribution, 2), n, sample)
    assert standard_errors(sample, n * mean, n * variance, normal_fourth(n * variance)) <= MAX_ERRORS


@pytest.mark.parametrize("n", [50, 1_000])
def test_rare_large_counts_keep_the_mean(n: int) -> None:
    """One row in a thousand becomes ten rows: 10 times a binomial count."""
    sample = np.zeros(DRAWS)
    fill_with_counts(draws_of(Empirical(values=(0.0,) * 999 + (10.0,)), 3), n, sample)
    assert set(sample % 10) == {0.0}
    variance = n * 0.001 * 0.999
    assert standard_errors(sample / 10, n * 0.001, variance, normal_fourth(variance)) <= MAX_ERRORS


@pytest.mark.parametrize("p", [0.001, 0.02, 0.3, 0.5, 0.98, 0.999])
@pytest.mark.parametrize("trials", [20, 31, 1_000, 100_000])
def test_a_binomial_count_has_the_mean_and_variance(trials: int, p: float) -> None:
    sample = np.zeros(DRAWS)
    fill_with_binomials(draws_of(Fixed(value=0.0), 1).streams, trials, p, sample)
    assert sample.max() <= trials
    variance = trials * p * (1 - p)
    assert standard_errors(sample, trials * p, variance, normal_fourth(variance)) <= MAX_ERRORS
