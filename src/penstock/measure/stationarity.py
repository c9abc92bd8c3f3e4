"""Tests on a series of measurements: whether a rate has converged, and whether a latency grows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from penstock.dataflow.errors import PenstockError

_SIGNIFICANCE = 0.05  # probability of mistaking a constant latency for a growing one


class ConvergenceError(PenstockError):
    """A parameter of the K-of-N rule is invalid."""


def samples_until_converged(samples: Sequence[float], *, n: int = 5, k: int = 4, tolerance: float = 0.05) -> int | None:
    """Return the number of samples until K of the last N differ by at most `tolerance` from their predecessors.

    None: the samples have not converged. Source: Imai, Patterson and Varela (2017), section 3.2, with N = 5, K = 4 and
    5%. A missing sample (NaN) is not close to any other. N comparisons need N + 1 samples, but K may agree earlier.

    >>> samples_until_converged([5, 12, 30, 41, 42, 41.5, 42.3, 42.1])
    8
    >>> samples_until_converged([5, 12, 30, 41]) is None
    True
    """
    if not 1 <= k <= n:
        raise ConvergenceError(f"K is {k} and N is {n}. K must be between 1 and N.")
    if not tolerance >= 0:
        raise ConvergenceError(f"The tolerance is {tolerance}. It must be 0 or more.")
    close = [
        math.isfinite(before) and math.isfinite(now) and abs(now - before) <= tolerance * abs(before)
        for before, now in pairwise(samples)
    ]
    for end in range(1, len(close) + 1):
        if sum(close[max(0, end - n) : end]) >= k:
            return end + 1
    return None


def has_converged(samples: Sequence[float], *, n: int = 5, k: int = 4, tolerance: float = 0.05) -> bool:
    """Return whether the latest samples satisfy the rule. A rate that converged earlier may have changed again.

    >>> has_converged([42, 42, 42, 42, 42]), has_converged([42, 42, 42, 42, 42, 60, 80])
    (True, False)
    """
    return samples_until_converged(samples[-(n + 1) :], n=n, k=k, tolerance=tolerance) is not None


def latency_slope(times_s: Sequence[float], latencies_s: Sequence[float]) -> tuple[float, float]:
    """Return the growth of the latency in seconds per second, and its one-sided p-value.

    At an arrival rate r above the capacity m, the latency grows by 1 - m/r per second.

    >>> slope, p_value = latency_slope([0, 1, 2, 3, 4], [1.0, 1.1, 1.2, 1.3, 1.4])
    >>> round(slope, 6), p_value < 0.001
    (0.1, True)
    """
    if len(times_s) < 3 or np.ptp(times_s) == 0:
        return 0.0, 1.0
    if np.ptp(latencies_s) == 0:
        return 0.0, 1.0
    line = stats.linregress(times_s, latencies_s, alternative="greater")
    return float(line.slope), float(line.pvalue)


def latency_grows(times_s: Sequence[float], latencies_s: Sequence[float], *, at_least: float = 0.02) -> bool:
    """Return whether the latency grows significantly and by at least `at_least` seconds per second."""
    slope, p_value = latency_slope(times_s, latencies_s)
    return slope >= at_least and p_value < _SIGNIFICANCE
