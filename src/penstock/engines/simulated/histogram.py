"""A histogram of latencies whose bins are 1/64 of a power of two: quantiles within 1.6%, means exact."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.compiling import compiled
from penstock.measure.window import Latency

_PER_OCTAVE = 64
_LEAST_EXPONENT = -30  # about a nanosecond
_OCTAVES = 60
BINS = _PER_OCTAVE * _OCTAVES


@compiled
def bin_of(seconds: float) -> int:
    if seconds <= 0.0:
        return 0
    mantissa, exponent = math.frexp(seconds)
    at = (exponent - _LEAST_EXPONENT) * _PER_OCTAVE + int((mantissa - 0.5) * 2 * _PER_OCTAVE)
    return min(BINS - 1, max(0, at))


@compiled
def note(stays: np.ndarray, sums: np.ndarray, seconds: float, rows: float) -> None:
    stays[bin_of(seconds)] += rows
    sums[0] += rows
    sums[1] += rows * seconds
    sums[2] += rows * seconds * seconds


def upper_ends_s() -> np.ndarray:
    """Of the bins."""
    at = np.arange(BINS)
    return np.asarray(
        (0.5 + (at % _PER_OCTAVE + 1) / (2.0 * _PER_OCTAVE)) * 2.0 ** (at // _PER_OCTAVE + _LEAST_EXPONENT)
    )


def latency_of(stays: np.ndarray, rows: float, seconds: float) -> Latency | None:
    """Of the rows counted. A quantile is the middle of the bin that so many rows reach; zero stays zero."""
    if rows < 0.5:
        return None
    reached = np.cumsum(stays)
    ends = upper_ends_s()

    def within(share: float) -> float:
        at = int(np.searchsorted(reached, share * reached[-1] * (1.0 - 1e-12)))
        return float(ends[at] * (1.0 - 0.5 / (2 * _PER_OCTAVE))) if at > 0 else 0.0

    mean = seconds / rows
    return Latency(rows=round(rows), mean_s=mean, p50_s=within(0.5), p95_s=within(0.95), p99_s=within(0.99))
