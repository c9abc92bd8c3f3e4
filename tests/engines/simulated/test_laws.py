"""Draws against mean and variance of their law: also where hardly any row of many is kept, or hardly any is lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import njit

from penstock.engines.simulated import Distribution, Empirical, Exponential, Fixed, Geometric, Poisson
from penstock.engines.simulated.draws import binomial, laws, streams, sum_of_counts

TIMES = 20_000


@njit  # not kept on disk: a kept loop would hold the draws of an older source
def many_sums(records: np.ndarray, values: np.ndarray, rng: np.ndarray, n: int, found: np.ndarray) -> None:
    for i in range(len(found)):
        found[i] = sum_of_counts(records, values, 0, rng, 0, n)


@njit  # not kept on disk: a kept loop would hold the draws of an older source
def many_binomials(rng: np.ndarray, trials: int, p: float, found: np.ndarray) -> None:
    for i in range(len(found)):
        found[i] = binomial(rng, 0, trials, p)


def errors(found: np.ndarray, mean: float, variance: float) -> float:
    """How many standard errors mean and variance are off, the larger; counts below 0 are infinitely far off.

    The variance's error is that of a normal law, or of a Poisson law where few are counted.
    """
    if found.min() < 0:
        return math.inf
    of_mean = abs(found.mean() - mean) / math.sqrt(variance / TIMES)
    of_variance = abs(found.var() / variance - 1.0) / math.sqrt((2.0 + 1.0 / variance) / TIMES)
    return float(max(of_mean, of_variance))


@pytest.mark.parametrize("p", [0.001, 0.02, 0.3, 0.5, 0.98, 0.999])
@pytest.mark.parametrize("trials", [20, 31, 1_000, 100_000])
def test_a_binomial_count_has_its_mean_and_variance(trials: int, p: float) -> None:
    found = np.zeros(TIMES)
    many_binomials(streams(1, 1), trials, p, found)
    assert found.max() <= trials
    assert errors(found, trials * p, trials * p * (1 - p)) <= 4.5


@pytest.mark.parametrize("n", [1, 31, 1_000])
@pytest.mark.parametrize(
    ("law", "mean", "variance"),
    [
        (Fixed(value=0.001), 0.001, 0.001 * 0.999),
        (Fixed(value=2.999), 2.999, 0.001 * 0.999),
        (Poisson(mean=0.01), 0.01, 0.01),
        (Geometric(mean=1.01), 1.01, 0.01 * 1.01),
        (Empirical(values=(1.0,) * 99 + (0.0,)), 0.99, 0.01 * 0.99),
        # x < 1 all but always: then a count is 1 with probability x, so its variance is m (1 - m).
        (Exponential(mean=0.01), 0.01, 0.01 * 0.99),
    ],
)
def test_a_sum_of_counts_has_its_mean_and_variance(law: Distribution, mean: float, variance: float, n: int) -> None:
    found = np.zeros(TIMES)
    many_sums(*laws([law]), streams(2, 1), n, found)
    assert errors(found, n * mean, n * variance) <= 4.5


@pytest.mark.parametrize("n", [50, 1_000])
def test_rows_that_seldom_become_many_keep_their_mean(n: int) -> None:
    """One row in a thousand becomes ten: 10 times a binomial count."""
    found = np.zeros(TIMES)
    many_sums(*laws([Empirical(values=(0.0,) * 999 + (10.0,))]), streams(3, 1), n, found)
    assert set(found % 10) == {0.0}
    assert errors(found / 10, n * 0.001, n * 0.001 * 0.999) <= 4.5
