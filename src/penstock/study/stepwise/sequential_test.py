"""Decide after each window whether a trial has answered its question, at a given significance level.

The question is whether the throughput of a trial is better or worse than that of a reference trial. Testing again after
each window would find differences that do not exist, so each test may use only a part of the significance level. The
parts follow the spending function of Lan and DeMets (Biometrika 70, 1983) with the shape of Pocock, which ends trials
with a clear answer early, and add up to the level. The total probability of a false answer is therefore at most the
level (union bound). Neighbouring windows of a trial are correlated, which `autocorrelation` takes into account.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special, stats

from penstock.study.stepwise.autocorrelation import TEST_MARGIN, autocorrelation, mean_error

_REMAINING = 2  # windows that the rule never discards


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference"
    TARGET_MISSED = "target missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """The length of a trial in windows, after the warm-up, and the accuracy of its answer."""

    min_windows: int = 6
    max_windows: int = 30
    max_warm_up: int = 30  # windows after which a trial that is still not stationary is measured nevertheless
    significance: float = 0.05
    tolerance: float = 0.02  # relative difference of the throughput that does not matter


def warm_up_windows(samples: Sequence[float]) -> int | None:
    """Return the number of windows to discard until the series is stationary; None if it is not stationary yet.

    Marginal standard error rule (White, Simulation 69, 1997): discard the windows whose removal minimises the standard
    error of the mean of the rest. If that is half of the windows or more, the series has not settled.

    >>> warm_up_windows([10, 40, 80, 100, 101, 99, 100, 100, 101, 99])
    3
    >>> warm_up_windows([10, 20, 30, 40, 50, 60]) is None
    True
    """
    count = len(samples)
    if count < 2 * _REMAINING:
        return None
    values = np.asarray(samples, float)
    errors = [float(np.var(values[start:])) / (count - start) for start in range(count - _REMAINING)]
    start = int(np.argmin(errors))
    return start if start < count // 2 else None


def spent_level(windows: int, limits: TrialLimits) -> float:
    """Return the significance that the test after this number of windows may use.

    Until the share t of the longest duration, alpha ln(1 + (e - 1) t) is spent.

    >>> limits = TrialLimits(min_windows=1, max_windows=30)
    >>> round(sum(spent_level(windows, limits) for windows in range(1, 31)), 6)
    0.05
    """

    def spent(until: int) -> float:
        return limits.significance * math.log1p((math.e - 1.0) * until / limits.max_windows)

    before = 0 if windows <= limits.min_windows else windows - 1
    return spent(windows) - spent(before)


def verdict_after(
    reference: Sequence[float],
    samples: Sequence[float],
    limits: TrialLimits,
    *,
    latencies_s: Sequence[float] = (),
    latency_target_s: float | None = None,
) -> Verdict | None:
    """Return the answer after the latest window, or None if the trial has to continue.

    Better and worse: Welch's t-test. No difference: two one-sided tests show that the difference is within the
    tolerance, or the trial has reached its longest duration. Target missed: the mean latency is above the target.

    Args:
        reference: Rows/s in each window of the reference trial, which has ended.
        samples: Rows/s in each window of this trial so far, without its warm-up.
        limits: Length of the trial and significance of its answer.
        latencies_s: Mean latency in each window so far.
        latency_target_s: A trial above this latency ends, whatever its throughput; None: the latency does not matter.
    """
    count = len(samples)
    if count < limits.min_windows or len(reference) < 2:
        return None
    level = spent_level(count, limits)
    if latency_target_s is not None and _is_above(latencies_s, latency_target_s, level):
        return Verdict.TARGET_MISSED
    mean, other = float(np.mean(samples)), float(np.mean(reference))
    if max(np.ptp(samples), np.ptp(reference)) <= 1e-9 * abs(other):  # no variation, as in a simulation of fixed times
        if abs(mean - other) <= limits.tolerance * abs(other):
            return Verdict.NO_DIFFERENCE
        return Verdict.BETTER if mean > other else Verdict.WORSE
    welch = welch_test(reference, samples)
    if welch.p_value < level:
        return Verdict.BETTER if welch.difference > 0 else Verdict.WORSE
    margin = limits.tolerance * abs(other)
    is_equal = welch.p_not_above(-margin) < level and welch.p_not_below(margin) < level
    return Verdict.NO_DIFFERENCE if is_equal or count >= limits.max_windows else None


@dataclass(frozen=True, slots=True)
class WelchTest:
    """Welch's t-test of the means of two series."""

    difference: float
    error: float
    freedom: float

    @property
    def p_value(self) -> float:
        """The probability of such a difference, in either direction, if the means are equal."""
        return float(2.0 * special.stdtr(self.freedom, -abs(self.difference) / self.error))

    def p_not_above(self, bound: float) -> float:
        """Return the probability of such a difference or a higher one if the means differ by the bound at most."""
        return float(special.stdtr(self.freedom, (bound - self.difference) / self.error))

    def p_not_below(self, bound: float) -> float:
        return float(special.stdtr(self.freedom, (self.difference - bound) / self.error))


def welch_test(reference: Sequence[float], samples: Sequence[float]) -> WelchTest:
    """Compare two series that vary. Both have the same correlation of neighbours, because it is hard to estimate."""
    correlation = autocorrelation(reference, samples, margin=TEST_MARGIN)
    errors = [mean_error(values, correlation) for values in (reference, samples)]
    variance = sum(error.variance for error in errors)
    freedom = variance**2 / sum(error.variance**2 / error.freedom for error in errors)
    return WelchTest(float(np.mean(samples)) - float(np.mean(reference)), math.sqrt(variance), freedom)


def _is_above(values: Sequence[float], bound: float, level: float) -> bool:
    if len(values) < 2:
        return False
    if np.ptp(values) <= 1e-9 * bound:
        return values[0] > bound
    error = mean_error(values, autocorrelation(values, margin=TEST_MARGIN))
    return bool(special.stdtr(error.freedom, (bound - float(np.mean(values))) / math.sqrt(error.variance)) < level)


def confidence_interval(samples: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of the mean of independent values: mean +- t s / sqrt(n).

    >>> low, high = confidence_interval([9.0, 10.0, 11.0])
    >>> round(low, 2), round(high, 2)
    (7.52, 12.48)
    """
    mean, error = float(np.mean(samples)), float(stats.sem(samples)) if len(samples) > 1 else 0.0
    if error <= 0.0 or not math.isfinite(error):
        return mean, mean
    low, high = stats.t.interval(level, df=len(samples) - 1, loc=mean, scale=error)
    return float(low), float(high)


def trial_interval(samples: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of the mean of the windows of one trial, which may be correlated."""
    mean = float(np.mean(samples))
    if len(samples) < 2 or np.ptp(samples) <= 0.0:
        return mean, mean
    error = mean_error(samples, autocorrelation(samples))
    half = float(stats.t.ppf(0.5 + level / 2.0, error.freedom)) * math.sqrt(error.variance)
    return mean - half, mean + half


def is_precise(samples: Sequence[float], limits: TrialLimits) -> bool:
    """Return whether a trial without a reference may end: its throughput is known within the tolerance."""
    if len(samples) < limits.min_windows:
        return False
    low, high = confidence_interval(samples, 1.0 - limits.significance)
    return len(samples) >= limits.max_windows or high - low <= 2.0 * limits.tolerance * abs(low + high) / 2.0
