"""Does a pipeline keep up at the rate it is given? Then how long rows stay does not grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

_NOISE = 0.05  # significance: how often a steady latency may be taken for a growing one


def latency_slope(times_s: Sequence[float], latencies_s: Sequence[float]) -> tuple[float, float]:
    """Seconds of latency a second, and the probability of such a slope or a steeper one if there is none.

    Rows that come at rate r to a pipeline that takes m < r a second stay longer by 1 - m/r each second.

    >>> slope, by_chance = latency_slope([0, 1, 2, 3, 4], [1.0, 1.1, 1.2, 1.3, 1.4])
    >>> round(slope, 6), by_chance < 0.001
    (0.1, True)
    """
    if len(times_s) < 3 or np.ptp(times_s) == 0:
        return 0.0, 1.0
    if np.ptp(latencies_s) == 0:
        return 0.0, 1.0
    line = stats.linregress(times_s, latencies_s, alternative="greater")
    return float(line.slope), float(line.pvalue)


def latency_grows(times_s: Sequence[float], latencies_s: Sequence[float], *, at_least: float = 0.02) -> bool:
    """A slope worth the name that is not chance."""
    slope, by_chance = latency_slope(times_s, latencies_s)
    return slope >= at_least and by_chance < _NOISE
