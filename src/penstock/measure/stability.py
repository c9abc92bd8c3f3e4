"""Test whether a pipeline sustains its input rate: its latency must not grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

_SIGNIFICANCE = 0.05  # probability of mistaking a constant latency for a growing one


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
