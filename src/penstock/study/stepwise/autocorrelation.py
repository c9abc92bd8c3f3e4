"""The error of the mean of a series whose values depend on the ones before, as for windows of one trial.

A window with a high throughput is often followed by another one: rows and batches reach from one window into the next.
The mean of such a series varies more than that of independent values. The model is a first-order autoregressive series,
in which the correlation of two values is r^distance. The mean of n values is then as accurate as that of n / f
independent ones. The factor f is 1 + 2 sum (1 - k/n) r^k over the distances k from 1 to n - 1 (Bayley and Hammersley,
JRSS Supplement 8, 1946).

A trial has a few windows only, so r is uncertain. An estimate from n values is too low by about (1 + 3 r) / n, of which
1/n comes from the mean that is estimated too, and its standard error is about 1 / sqrt(n). Tests use an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_HIGHEST = 0.9
# Standard errors by which a test exceeds the estimate. Chosen so that tests keep their level for r of up to 0.6 and
# trials of at least four windows.
TEST_MARGIN = 0.7


@dataclass(frozen=True, slots=True)
class MeanError:
    """The variance of a mean, and its degrees of freedom."""

    variance: float
    freedom: float


def autocorrelation(*series: Sequence[float], margin: float = 0.0) -> float:
    """Return the common correlation of neighbours in all series, raised by a number of standard errors.

    Each series varies around a mean of its own. The result is not negative.

    >>> autocorrelation([1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    0.0
    >>> round(autocorrelation([1.0, 1.0, 1.0, 3.0, 3.0, 3.0]), 2)  # 3/6 is measured
    0.75
    """
    products = squares = 0.0
    for values in series:
        deviations = np.asarray(values, float) - np.mean(values)
        products += float(deviations[1:] @ deviations[:-1])
        squares += float(deviations @ deviations)
    if squares <= 0.0:
        return 0.0
    count, measured = sum(map(len, series)), products / squares
    unbiased = measured + (len(series) + max(0.0, measured)) / count
    return min(_HIGHEST, max(0.0, unbiased + margin / math.sqrt(count)))


def variance_factor(count: int, correlation: float) -> float:
    """Return the variance of the mean of so many values relative to that of independent values.

    >>> variance_factor(10, 0.0)
    1.0
    >>> round(variance_factor(2, 0.5), 3)  # (2 + 2 x 0.5) / 2
    1.5
    """
    if correlation <= 0.0:
        return 1.0
    share = correlation / (1.0 - correlation)
    return 1.0 + 2.0 * share * (1.0 - (1.0 - correlation**count) / (count * (1.0 - correlation)))


def mean_error(values: Sequence[float], correlation: float) -> MeanError:
    """Return the error of the mean. Without correlation it is that of Student's t-test.

    The deviations from the mean of n values are too small as well: their sum of squares is that of n - f independent
    values.

    >>> mean_error([9.0, 10.0, 11.0], 0.0)
    MeanError(variance=0.3333333333333333, freedom=2.0)
    """
    count = len(values)
    independent = count / variance_factor(count, correlation)
    squares = float(np.var(values)) * count
    return MeanError(squares / count / (independent - 1.0), max(1.0, independent - 1.0))
