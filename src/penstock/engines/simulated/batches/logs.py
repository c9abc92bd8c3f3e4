"""Logs of the micro-batch loop: sources and channels. A log stores cohorts of rows instead of single rows."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.batches.records import COHORTS, BatchState
from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.counts import SimulationCounts, count_latency
from penstock.engines.simulated.compiled.draws import Draws, normal, poisson, rows_of_arrivals
from penstock.engines.simulated.distributions import EXPONENTIAL, FIXED

_LATENCY_SAMPLES = 8  # latencies that represent a cohort in the histogram


@compiled
def append_cohort(state: BatchState, log: int, rows: int, first_s: float, last_s: float) -> None:
    """Append rows whose append times are spread evenly between two times."""
    if rows <= 0:
        return
    logs, cohorts = state.logs, state.cohorts
    logs[log].rows += rows
    size = logs[log].size
    if size == COHORTS:
        newest = log * COHORTS + (logs[log].head + size - 1) % COHORTS
        cohorts[newest].rows += rows
        cohorts[newest].first_s = min(cohorts[newest].first_s, first_s)
        cohorts[newest].last_s = max(cohorts[newest].last_s, last_s)
        return
    at = log * COHORTS + (logs[log].head + size) % COHORTS
    cohorts[at].rows = rows
    cohorts[at].first_s = first_s
    cohorts[at].last_s = last_s
    logs[log].size = size + 1


@compiled
def expected_arrivals(inflows: np.ndarray, rates: np.ndarray, source: int, start_s: float, end_s: float) -> float:
    """Return the expected number of arrivals at a source between two times."""
    first, size = inflows[source].rate_first, inflows[source].rate_size
    repeat = inflows[source].repeat_s
    offset = 0.0 if math.isinf(repeat) else math.floor(start_s / repeat) * repeat
    i = 0
    while i + 1 < size and offset + rates[first + i + 1].from_s <= start_s:
        i += 1
    at, expected = start_s, 0.0
    while at < end_s:
        step_end = min(end_s, offset + (rates[first + i + 1].from_s if i + 1 < size else repeat))
        expected += rates[first + i].per_s * (step_end - at)
        at = step_end
        i += 1
        if i == size:
            i = 0
            offset += repeat
    return expected


@compiled
def append_arrivals(state: BatchState, draws: Draws, counts: SimulationCounts, source: int, now_s: float) -> None:
    """Append the rows of a source that arrived since the last call.

    The number of arrivals is Poisson if gaps are exponential. Otherwise it is normal with the variance of a renewal
    process: expected arrivals x SCV of a gap. Fractions of an arrival are carried over, which keeps the mean exact.
    """
    inflows = state.inflows
    start_s = inflows[source].since_s
    if now_s <= start_s or inflows[source].rows_left <= 0:
        return
    operator = inflows[source].operator
    mass = expected_arrivals(inflows, state.rates, source, start_s, now_s)
    inflows[source].since_s = now_s
    gap = draws.distributions[2 * operator]
    if gap.kind == EXPONENTIAL:
        arrivals = int(poisson(draws.streams, 3 * operator, mass))
    else:
        expected = inflows[source].carry + mass
        if gap.kind != FIXED:
            expected += math.sqrt(mass * gap.variance) / gap.mean * normal(draws.streams, 3 * operator)
        arrivals = int(max(0.0, math.floor(expected + 1e-9)))
        inflows[source].carry = expected - arrivals
    rows = min(rows_of_arrivals(draws, operator, arrivals), inflows[source].rows_left)
    inflows[source].rows_left -= rows
    counts.operators[operator].arrived += rows
    append_cohort(state, inflows[source].log, rows, start_s, now_s)


@compiled
def count_cohort_latency(counts: SimulationCounts, now_s: float, first_s: float, last_s: float, rows: float) -> None:
    """Count the latencies of rows that reach a sink now and were appended evenly between two times."""
    for sample in range(_LATENCY_SAMPLES):
        born_s = first_s + (last_s - first_s) * (sample + 0.5) / _LATENCY_SAMPLES
        count_latency(counts, now_s - born_s, rows / _LATENCY_SAMPLES)


@compiled
def remove_cohort(state: BatchState, log: int) -> tuple[int, float, float]:
    """Remove the oldest cohort of the rows that the current batch has read, or the part of it that was read.

    Return (rows, first_s, last_s), with 0 rows if no such rows are left.
    """
    logs, cohorts = state.logs, state.cohorts
    left = logs[log].taken_rows
    if left <= 0:
        return 0, 0.0, 0.0
    at = log * COHORTS + logs[log].head
    rows, first_s, last_s = cohorts[at].rows, cohorts[at].first_s, cohorts[at].last_s
    if rows > left:
        middle_s = first_s + (last_s - first_s) * left / rows
        cohorts[at].rows = rows - left
        cohorts[at].first_s = middle_s
        rows, last_s = left, middle_s
    else:
        logs[log].head = (logs[log].head + 1) % COHORTS
        logs[log].size -= 1
    logs[log].taken_rows -= rows
    logs[log].rows -= rows
    return int(rows), float(first_s), float(last_s)
