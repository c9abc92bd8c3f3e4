"""Counts of a simulation since its start, including a histogram of latencies.

Each bin of the histogram spans 1/64 of a power of two, so quantiles are within 1.6 % and means are exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.records import Records, record
from penstock.measure.window import Latency

_BINS_PER_OCTAVE = 64
_LEAST_EXPONENT = -30  # about a nanosecond
_OCTAVES = 60
BINS = _BINS_PER_OCTAVE * _OCTAVES

_I, _F = np.int64, float

COUNT = record(
    arrived=_I,  # rows that arrived at the operator's queue or log
    rows_in=_I,  # rows that the operator has finished
    rows_out=_I,
    busy_s=_F,
    entry_s=_F,  # time to take rows from the queue of the pipeline that begins with the operator; not in `busy_s`
    # Squared coefficients of variation are derived from the next four fields.
    last_arrival_s=_F,
    gap_s2=_F,  # sum of squared times between arrivals
    services=_I,  # number of services; rows that are served together are one service
    spread_s2=_F,  # sum over services of (time - expected time)^2 / rows
    # Concurrent calls: mean numbers in flight and mean times are derived from the next three fields.
    called_s=_F,  # sum of the times of all calls
    active_s=_F,  # time of the replicas with at least one call in flight
    waited_s=_F,  # sum over rows of the time between their arrival at the replicas and their call
    # Micro-batch mode only; stored with the last operator of a pipeline.
    batches=_I,
    batch_s=_F,
    batch_longest_s=_F,  # since the last window
    task_s=_F,
)


class SimulationCounts(NamedTuple):
    """Counts since the start of a simulation. Compiled loops update them in place."""

    operators: Records  # COUNT records in the order of `flow.operators`
    latency_bins: np.ndarray  # histogram of the latencies at sinks: rows in each bin
    latency_sums: np.ndarray  # at sinks: [0] rows, [1] sum of latencies, [2] of their squares

    def snapshot(self) -> SimulationCounts:
        """Return a copy that later updates do not change."""
        return SimulationCounts(*(array.copy() for array in self))

    @staticmethod
    def zero(operators: int) -> SimulationCounts:
        return SimulationCounts(
            operators=np.zeros(operators, COUNT), latency_bins=np.zeros(BINS), latency_sums=np.zeros(3)
        )


@compiled
def count_arrivals(operators: np.ndarray, operator: int, now_s: float, rows: int) -> None:
    """Count rows that arrive together: the time between them is 0."""
    gap = now_s - operators[operator].last_arrival_s
    operators[operator].arrived += rows
    operators[operator].gap_s2 += gap * gap
    operators[operator].last_arrival_s = now_s


@compiled
def count_service(operators: np.ndarray, operator: int, seconds: float, rows: int, mean_s: float) -> None:
    """Count one service of `rows` rows, whose expected time is `mean_s` per row."""
    operators[operator].busy_s += seconds
    operators[operator].services += 1
    operators[operator].spread_s2 += (seconds - rows * mean_s) ** 2 / rows


@compiled
def latency_bin(seconds: float) -> int:
    """Return the index of the bin that holds this latency."""
    if seconds <= 0.0:
        return 0
    mantissa, exponent = math.frexp(seconds)
    at = (exponent - _LEAST_EXPONENT) * _BINS_PER_OCTAVE + int((mantissa - 0.5) * 2 * _BINS_PER_OCTAVE)
    return min(BINS - 1, max(0, at))


@compiled
def count_latency(counts: SimulationCounts, seconds: float, rows: float) -> None:
    """Count rows that reach a sink with this latency. In fluid mode the number of rows may be a fraction."""
    counts.latency_bins[latency_bin(seconds)] += rows
    counts.latency_sums[0] += rows
    counts.latency_sums[1] += rows * seconds
    counts.latency_sums[2] += rows * seconds * seconds


@compiled
def count_latencies(counts: SimulationCounts, latencies_s: np.ndarray, rows: float) -> None:
    """Count `rows` rows for each of these latencies."""
    for seconds in latencies_s:
        count_latency(counts, seconds, rows)


def bin_ends_s() -> np.ndarray:
    """Return the upper end of each bin."""
    at = np.arange(BINS)
    return np.asarray(
        (0.5 + (at % _BINS_PER_OCTAVE + 1) / (2.0 * _BINS_PER_OCTAVE))
        * 2.0 ** (at // _BINS_PER_OCTAVE + _LEAST_EXPONENT)
    )


def latency_between(before: SimulationCounts, after: SimulationCounts) -> Latency | None:
    """Return the latency of the rows that were counted between two snapshots; None if there are none.

    A quantile is the middle of the bin that contains it. A latency of exactly 0 stays 0.
    """
    rows, seconds, squares_s2 = (after.latency_sums - before.latency_sums).tolist()
    if rows < 0.5:
        return None
    cumulated = np.cumsum(after.latency_bins - before.latency_bins)
    ends = bin_ends_s()

    def quantile_s(share: float) -> float:
        at = int(np.searchsorted(cumulated, share * cumulated[-1] * (1.0 - 1e-12)))
        return float(ends[at] * (1.0 - 0.5 / (2 * _BINS_PER_OCTAVE))) if at > 0 else 0.0

    return Latency(
        rows=round(rows),
        mean_s=seconds / rows,
        p50_s=quantile_s(0.5),
        p95_s=quantile_s(0.95),
        p99_s=quantile_s(0.99),
        sd_s=math.sqrt(max(0.0, squares_s2 / rows - (seconds / rows) ** 2)),
    )
