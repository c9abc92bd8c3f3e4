"""Whether measured windows miss a bound by more than their noise explains.

The windows of a run are correlated: a queue that is long now is long in the next window as well. The mean of n values
with lag-1 correlation r has the variance of the mean of n (1 - r) / (1 + r) independent values (AR(1) process). The
correlation is estimated from the windows before and after a change together, and its bias for short series is
corrected by (1 + 4 r) / n (Kendall, Biometrika 41, 1954). A short series says little about its correlation, so the
estimate begins at a high value.

A backlog that grows is one long trend, whose correlation is 1. Such windows miss a bound once their mean is farther
away than the noise before the change explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

FEWEST = 3  # values without which the noise is unknown
_ERROR = 0.0003  # probability of a wrong conclusion per look
_ASSUMED_CORRELATION, _ASSUMED_FOR = 0.9, 16  # assumed before any is measured, with the weight of so many values
_MOST_CORRELATED = 0.97
_LEAST_FREEDOM = 5  # degrees of freedom of the t test; the assumed correlation covers shorter series
_LEAST_DEVIATION = 1e-4  # rounding: equal values have no noise
_KNOWN = 25  # values before the change from which their spread is known
_FAR = 5.0  # standard errors beyond which no mean of windows lies by chance
_LEAST_SPREAD = 0.08
_FAR_UNKNOWN = 1.6  # the same for the logarithm, if the spread is not known


class Noise(NamedTuple):
    """The noise of the windows of a run."""

    deviation: float  # standard deviation of the logarithm of a value
    correlation: float  # lag 1
    values: int

    def independent(self, count: int) -> float:
        """Return the independent values whose mean is as accurate as that of so many consecutive ones."""
        return max(1.0, count * (1.0 - self.correlation) / (1.0 + self.correlation))


def noise_of(*series: Sequence[float]) -> Noise | None:
    """Return the common noise of several series; None if they are too short."""
    logs = [_logarithms(values) for values in series if len(values) >= 2]
    deviations = [values - values.mean() for values in logs]
    count = sum(len(values) for values in deviations)
    if count < FEWEST:
        return None
    squares = sum(float(values @ values) for values in deviations)
    products = sum(float(values[1:] @ values[:-1]) for values in deviations)
    measured = products / squares if squares > 0 else 0.0
    measured += (1.0 + 4.0 * measured) / count
    weight = count / (count + _ASSUMED_FOR)
    correlation = weight * measured + (1.0 - weight) * _ASSUMED_CORRELATION
    return Noise(
        deviation=max(_LEAST_DEVIATION, math.sqrt(squares / (count - len(deviations)))),
        correlation=min(_MOST_CORRELATED, max(0.0, correlation)),
        values=count,
    )


def exceeds(after: Sequence[float], bound: float, *, before: Sequence[float] = (), share: float, averaged: int) -> bool:
    """Return whether the mean of positive values after a change is above a bound by more than noise.

    `bound` depends by the power `share` on the mean of the last `averaged` values `before`, which is noisy as well.

    >>> exceeds([1.6, 1.5, 1.7, 1.6, 1.6], 1.0, share=0.0, averaged=5)
    True
    >>> exceeds([1.9, 0.6, 1.1, 2.4, 0.7], 1.0, share=0.0, averaged=5)
    False
    """
    return _is_beyond(after, bound, before, share, averaged, sign=1.0)


def falls_below(
    after: Sequence[float], bound: float, *, before: Sequence[float] = (), share: float, averaged: int
) -> bool:
    """Return whether the mean of positive values after a change is below a bound by more than noise.

    >>> [falls_below([8.0, 8.1, 7.9, 8.0], bound, share=0.0, averaged=4) for bound in (8.0, 9.0)]
    [False, True]
    """
    return _is_beyond(after, bound, before, share, averaged, sign=-1.0)


def _is_beyond(
    after: Sequence[float], bound: float, before: Sequence[float], share: float, averaged: int, *, sign: float
) -> bool:
    if len(after) < FEWEST or bound <= 0:
        return False
    noise = noise_of(before, after)
    mean = float(np.mean(after))
    if noise is None or sign * (mean - bound) <= 0:
        return False
    if mean <= 0:
        return True  # nothing at all
    distance = sign * math.log(mean / bound)
    variance = 1.0 / noise.independent(len(after)) + share**2 / noise.independent(averaged)
    freedom = max(_LEAST_FREEDOM, int(noise.independent(noise.values)) - 1)
    if distance > _student(freedom) * noise.deviation * math.sqrt(variance):
        return True
    if len(before) < _KNOWN:
        return distance > _FAR_UNKNOWN
    known = _above_median(before)
    return distance > _FAR * max(_LEAST_SPREAD, known.deviation / math.sqrt(known.independent(len(after))))


def _above_median(values: Sequence[float]) -> Noise:
    """Return the noise of a series whose deviation is that of its upper half: windows of few rows may be near 0."""
    noise = noise_of(values)
    logs = _logarithms(values)
    middle = float(np.median(logs))
    upper = logs[logs >= middle] - middle
    assert noise is not None
    return noise._replace(deviation=math.sqrt(float(upper @ upper) / len(upper)))


def _logarithms(values: Sequence[float]) -> np.ndarray:
    """Return the logarithms; values of 0, such as windows without a batch, become relative deviations instead."""
    numbers = np.asarray(values, dtype=float)
    mean = float(numbers.mean())
    logs: np.ndarray = np.log(numbers) if numbers.min() > 0 else numbers / (mean or 1.0)
    return logs


@cache
def _student(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(1.0 - _ERROR, freedom))
