"""Logs in the compiled loop of micro-batches: sources and channels, whose rows are known by cohorts of births."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.batch_records import COHORTS
from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.distributions import EXPONENTIAL, FIXED
from penstock.engines.simulated.draws import normal, poisson, sum_of_counts
from penstock.engines.simulated.histogram import note

_PARTS = 8  # that the births of a cohort are noted in


@compiled
def add_cohort(logs: np.ndarray, cohorts: np.ndarray, log: int, rows: int, low: float, high: float) -> None:
    if rows <= 0:
        return
    logs[log].rows += rows
    size = logs[log].size
    if size == COHORTS:  # full: the newest one takes it in
        last = log * COHORTS + (logs[log].head + size - 1) % COHORTS
        cohorts[last].rows += rows
        cohorts[last].low = min(cohorts[last].low, low)
        cohorts[last].high = max(cohorts[last].high, high)
        return
    at = log * COHORTS + (logs[log].head + size) % COHORTS
    cohorts[at].rows = rows
    cohorts[at].low = low
    cohorts[at].high = high
    logs[log].size = size + 1


@compiled
def mass_between(inflows: np.ndarray, rates: np.ndarray, source: int, start: float, end: float) -> float:
    """Arrivals to be expected between two moments."""
    first, size = inflows[source].rate_first, inflows[source].rate_size
    repeat = inflows[source].repeat_s
    offset = 0.0 if math.isinf(repeat) else math.floor(start / repeat) * repeat
    i = 0
    while i + 1 < size and offset + rates[first + i + 1].at <= start:
        i += 1
    at, mass = start, 0.0
    while at < end:
        step_end = min(end, offset + (rates[first + i + 1].at if i + 1 < size else repeat))
        mass += rates[first + i].rate * (step_end - at)
        at = step_end
        i += 1
        if i == size:
            i = 0
            offset += repeat
    return mass


@compiled
def append_until(
    inflows: np.ndarray,
    rates: np.ndarray,
    laws: np.ndarray,
    values: np.ndarray,
    logs: np.ndarray,
    cohorts: np.ndarray,
    counts: np.ndarray,
    rng: np.ndarray,
    source: int,
    now: float,
) -> None:
    """What a source has appended up to now.

    Poisson where gaps are exponential; else normal with the variance of a renewal process, mass x SCV of a gap. What is
    left of an arrival is carried on, so that the mean is exact.
    """
    start = inflows[source].since
    if now <= start or inflows[source].left <= 0:
        return
    operator = inflows[source].operator
    mass = mass_between(inflows, rates, source, start, now)
    inflows[source].since = now
    gap = laws[2 * operator]
    if gap.kind == EXPONENTIAL:
        n = int(poisson(rng, 3 * operator, mass))
    else:
        expected = inflows[source].carry + mass
        if gap.kind != FIXED:
            expected += math.sqrt(mass * gap.variance) / gap.mean * normal(rng, 3 * operator)
        n = int(max(0.0, math.floor(expected + 1e-9)))
        inflows[source].carry = expected - n
    n = min(sum_of_counts(laws, values, 2 * operator + 1, rng, 3 * operator + 1, n), inflows[source].left)
    inflows[source].left -= n
    counts[operator].arrived += n
    add_cohort(logs, cohorts, inflows[source].log, n, start, now)


@compiled
def note_cohort(stays: np.ndarray, stay_sum: np.ndarray, now: float, low: float, high: float, rows: float) -> None:
    """Rows born evenly between low and high leave now."""
    for part in range(_PARTS):
        birth = low + (high - low) * (part + 0.5) / _PARTS
        note(stays, stay_sum, now - birth, rows / _PARTS)


@compiled
def commit_log(logs: np.ndarray, cohorts: np.ndarray, log: int) -> tuple[int, float, float]:
    """Removes the next cohort, or part of it, of what was taken: (rows, low, high); no rows when all is gone."""
    left = logs[log].taken
    if left <= 0:
        return 0, 0.0, 0.0
    at = log * COHORTS + logs[log].head
    rows, low, high = cohorts[at].rows, cohorts[at].low, cohorts[at].high
    if rows > left:
        middle = low + (high - low) * left / rows
        cohorts[at].rows = rows - left
        cohorts[at].low = middle
        rows, high = left, middle
    else:
        logs[log].head = (logs[log].head + 1) % COHORTS
        logs[log].size -= 1
    logs[log].taken -= rows
    logs[log].rows -= rows
    return int(rows), float(low), float(high)
