"""The sequential test: error rates by simulation, and each answer."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.policies.stepwise.recalibration import LIMITS as ONLINE_LIMITS
from penstock.study.stepwise.sequential_test import (
    TrialLimits,
    Verdict,
    confidence_interval,
    is_precise,
    spent_level,
    verdict_after,
    warm_up_windows,
)

LIMITS = TrialLimits()


def answer(reference: np.ndarray, samples: np.ndarray, limits: TrialLimits = LIMITS) -> tuple[Verdict, int]:
    """Return the verdict of a trial that ends at the first answer, and its length."""
    for count in range(1, len(samples) + 1):
        verdict = verdict_after(reference.tolist(), samples[:count].tolist(), limits)
        if verdict is not None:
            return verdict, count
    raise AssertionError("the trial has no end")


def series(rng: np.random.Generator, count: int, correlation: float, mean: float = 1_000.0) -> np.ndarray:
    """Return a stationary autoregressive series with a standard deviation of 50."""
    values = np.empty(count)
    last = rng.normal()
    for number in range(count):
        values[number] = last
        last = correlation * last + np.sqrt(1.0 - correlation**2) * rng.normal()
    return mean + 50.0 * values


LIMITS_IN_USE = {
    "default": LIMITS,
    "spark": TrialLimits(min_windows=8, max_windows=16, max_warm_up=8, tolerance=0.05),
    "online": ONLINE_LIMITS,
}


@pytest.mark.long
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("limits", LIMITS_IN_USE.values(), ids=LIMITS_IN_USE)
def test_at_most_6_percent_of_1000_comparisons_of_equal_trials_find_a_difference(
    limits: TrialLimits, correlation: float
) -> None:
    rng = np.random.default_rng(7)
    false = 0
    for _ in range(1_000):
        reference = series(rng, rng.integers(limits.min_windows, limits.max_windows + 1), correlation)
        verdict, _ = answer(reference, series(rng, limits.max_windows, correlation), limits)
        false += verdict in (Verdict.BETTER, Verdict.WORSE)
    assert false <= 60


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.9), (0.3, 0.75)])
@pytest.mark.parametrize("limits", LIMITS_IN_USE.values(), ids=LIMITS_IN_USE)
def test_a_difference_of_20_percent_is_found(limits: TrialLimits, correlation: float, least: float) -> None:
    rng = np.random.default_rng(8)
    better = 0
    for _ in range(200):
        reference = series(rng, rng.integers(limits.min_windows, limits.max_windows + 1), correlation)
        verdict, _ = answer(reference, series(rng, limits.max_windows, correlation, 1_200.0), limits)
        better += verdict is Verdict.BETTER
    assert better >= least * 200


@pytest.mark.parametrize(("factor", "expected"), [(1.2, Verdict.BETTER), (0.8, Verdict.WORSE)])
def test_a_real_difference_is_found_early(factor: float, expected: Verdict) -> None:
    rng = np.random.default_rng(3)
    verdicts, windows = [], []
    for _ in range(200):
        verdict, count = answer(rng.normal(1_000.0, 50.0, 30), rng.normal(factor * 1_000.0, 50.0, 30))
        verdicts.append(verdict)
        windows.append(count)
    # The difference is four standard deviations of a window.
    assert verdicts.count(expected) >= 198
    assert np.mean(windows) < LIMITS.max_windows / 2


def test_equal_trials_with_little_noise_end_before_the_longest_duration() -> None:
    rng = np.random.default_rng(5)
    results = [answer(rng.normal(1_000.0, 10.0, 30), rng.normal(1_000.0, 10.0, 30)) for _ in range(200)]
    assert sum(verdict is Verdict.NO_DIFFERENCE for verdict, _ in results) >= 190
    assert np.mean([count for _, count in results]) < LIMITS.max_windows


def test_trials_without_variation_are_compared_by_value() -> None:
    same = [100.0] * 6
    assert verdict_after(same, same, LIMITS) is Verdict.NO_DIFFERENCE
    assert verdict_after(same, [101.0] * 6, LIMITS) is Verdict.NO_DIFFERENCE  # within the tolerance of 2 %
    assert verdict_after(same, [110.0] * 6, LIMITS) is Verdict.BETTER
    assert verdict_after(same, [90.0] * 6, LIMITS) is Verdict.WORSE


def test_no_answer_before_the_shortest_duration() -> None:
    assert verdict_after([100.0] * 6, [200.0] * (LIMITS.min_windows - 1), LIMITS) is None


def test_a_missed_target_ends_the_trial_if_it_matters() -> None:
    samples, high = [100.0, 101.0, 99.0] * 2, [0.9, 1.0, 0.8] * 2
    missed = verdict_after(samples, samples, LIMITS, latencies_s=high, latency_target_s=0.5)
    assert missed is Verdict.TARGET_MISSED
    met = verdict_after(samples, samples, LIMITS, latencies_s=high, latency_target_s=1.5)
    assert met is not Verdict.TARGET_MISSED
    assert verdict_after(samples, samples, LIMITS, latencies_s=[0.9] * 6, latency_target_s=0.5) is Verdict.TARGET_MISSED


def test_the_tests_of_a_trial_share_the_significance_level() -> None:
    total = sum(spent_level(count, LIMITS) for count in range(LIMITS.min_windows, LIMITS.max_windows + 1))
    assert total == pytest.approx(LIMITS.significance)
    # Lan and DeMets: 0.05 ln(1 + 1.71828 / 2) is spent at half of the duration.
    half = sum(spent_level(count, LIMITS) for count in range(LIMITS.min_windows, LIMITS.max_windows // 2 + 1))
    assert half == pytest.approx(0.031006, rel=1e-4)


def test_the_warm_up_is_discarded() -> None:
    assert warm_up_windows([1.0, 2.0, 3.0]) is None
    ramp = [10.0, 30.0, 60.0, 90.0]
    steady = [100.0, 102.0, 98.0, 101.0, 99.0, 100.0, 103.0, 97.0, 100.0, 101.0]
    assert warm_up_windows(ramp + steady) == 4
    assert warm_up_windows(steady) == 0
    assert warm_up_windows(list(np.linspace(10.0, 100.0, 12))) is None


def test_a_trial_without_a_reference_ends_when_its_throughput_is_known() -> None:
    assert not is_precise([100.0] * (LIMITS.min_windows - 1), LIMITS)
    assert is_precise([100.0, 101.0, 99.0, 100.0, 100.0, 101.0], LIMITS)  # +- 0.8 %
    assert not is_precise([100.0, 150.0, 50.0, 120.0, 80.0, 100.0], LIMITS)
    assert is_precise([100.0, 150.0, 50.0] * 10, LIMITS)  # the longest duration
    # Student's t with 2 degrees of freedom: 4.303 x 1 / sqrt(3) = 2.484.
    assert confidence_interval([9.0, 10.0, 11.0]) == pytest.approx((7.516, 12.484), abs=1e-3)
