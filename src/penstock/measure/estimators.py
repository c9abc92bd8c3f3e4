"""Estimators over a window. Each returns None until the observations that it needs are available."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from penstock.measure.window import Latency

_MIN_OBSERVATIONS = 10  # for a coefficient of variation


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part / whole; None if either is unknown or the whole is 0.

    >>> ratio(3, 4), ratio(3, 0), ratio(None, 4)
    (0.75, None, None)
    """
    return None if part is None or not whole else part / whole


def true_rate(seconds_per_row: float | None) -> float | None:
    """Return the rows per second of a replica that is always busy: 1 / cost per row."""
    return None if not seconds_per_row else 1.0 / seconds_per_row


def scv(count: int, total: float, total_of_squares: float) -> float | None:
    """Return the squared coefficient of variation, variance / mean^2; None for fewer than ten observations.

    >>> scv(10, 10.0, 20.0), scv(10, 20.0, 40.0), scv(3, 3.0, 3.0)
    (1.0, 0.0, None)
    """
    if count < _MIN_OBSERVATIONS or total <= 0 or total_of_squares <= 0:
        return None
    return max(0.0, count * total_of_squares / total**2 - 1.0)


def utilisation(rows: int | None, seconds_per_row: float | None, replicas: int | None, span_s: float) -> float | None:
    """Return the busy time over the available time: rows x cost / (replicas x span).

    The cost is an average over earlier rows as well, so the result may exceed 1 by its error. It is limited to 1.

    >>> utilisation(100, 0.004, 2, 1.0), utilisation(100, 0.03, 2, 1.0)
    (0.2, 1.0)
    """
    if rows is None or seconds_per_row is None or not replicas or span_s <= 0:
        return None
    return min(1.0, rows * seconds_per_row / (replicas * span_s))


def latency(times: Sequence[tuple[float, float]]) -> Latency | None:
    """Return mean, quantiles and standard deviation of (seconds, rows) pairs.

    A quantile is the smallest time that covers the share.

    >>> latency([(1.0, 50), (2.0, 45), (9.0, 5)])
    Latency(rows=100, mean_s=1.85, p50_s=1.0, p95_s=2.0, p99_s=9.0, sd_s=1.7109938632268673)
    """
    if not times:
        return None
    seconds, rows = np.array(times, dtype=float).T
    order = np.argsort(seconds)
    seconds, rows = seconds[order], rows[order]
    total = rows.sum()
    if total <= 0:
        return None
    reached = np.cumsum(rows) / total

    def within(share: float) -> float:
        return float(seconds[min(int(np.searchsorted(reached, share - 1e-12)), len(seconds) - 1)])

    mean = float((seconds * rows).sum() / total)
    return Latency(
        rows=round(total),
        mean_s=mean,
        p50_s=within(0.5),
        p95_s=within(0.95),
        p99_s=within(0.99),
        sd_s=float(np.sqrt((rows * (seconds - mean) ** 2).sum() / total)),
    )


def grouped_scv(groups: Sequence[tuple[float, float]]) -> float | None:
    """Return the squared coefficient of variation of the times between rows; None for fewer than ten groups.

    Each group is (mean time of its rows, number of rows). Rows with the same time are one group: they count as evenly
    spread around it, because clocks and sources round times. The time between the means of two groups of k rows is a
    sum of the times between rows with weights 1/k, 2/k, ..., 1, ..., 1/k, so its variance is (2 k^2 + 1) / (3 k) times
    theirs.

    >>> grouped_scv([(0.5 * n, 2.0) for n in range(20)]), grouped_scv([(0.0, 1.0)])
    (0.0, None)
    """
    if len(groups) < _MIN_OBSERVATIONS:
        return None
    at, rows = np.array(sorted(groups), dtype=float).T
    gaps, between = np.diff(at), (rows[:-1] + rows[1:]) / 2.0
    if gaps.sum() <= 0 or between.min() <= 0:
        return None
    mean_s = gaps.sum() / between.sum()
    weights = np.maximum(1.0, (2.0 * between**2 + 1.0) / (3.0 * between))
    return float(((gaps - between * mean_s) ** 2 / weights).sum() / (len(gaps) - 1) / mean_s**2)


def cost_per_row(samples: Sequence[tuple[int, float]]) -> float | None:
    """Return the seconds per row from (rows, busy seconds) of batches, without the fixed cost of a batch.

    The estimate is the slope of a line with a non-negative intercept. If all batches have similar sizes the slope is
    not determined, and the ratio of the sums is returned as an upper estimate.

    >>> round(cost_per_row([(100, 0.3), (200, 0.5), (300, 0.7)]), 6)
    0.002
    >>> cost_per_row([(100, 0.2), (100, 0.2)])
    0.002
    """
    observed = [(rows, busy) for rows, busy in samples if rows > 0 and busy > 0]
    if not observed:
        return None
    rows, busy = np.array(observed, dtype=float).T
    plain = float(busy.sum() / rows.sum())
    if len(observed) < 3 or rows.max() < 1.5 * rows.min():
        return plain
    slope, intercept = np.polyfit(rows, busy, 1)
    return float(slope) if intercept >= 0 and slope > 0 else plain


def low_cost_per_row(samples: Sequence[tuple[int, float]], quantile: float = 0.1, together: int = 4) -> float | None:
    """Return the seconds per row of an undisturbed operator from (rows, busy seconds) of windows.

    It is a low quantile of the seconds per row, by rows. A window may contain the time of a batch whose rows are
    counted in the next window, so some consecutive windows are added up. If the busy time has a fixed part, the slope
    between small and large windows is lower (median of all pairs, Theil and Sen) and is returned.

    >>> low_cost_per_row([(10, 0.01), (10, 0.03), (10, 0.02), (10, 0.02)])
    0.002
    >>> round(low_cost_per_row([(10, 9.0), (10, 0.51), (20, 0.52), (40, 0.54), (80, 0.58)]), 6)
    0.001
    """
    known = [(rows, seconds) for rows, seconds in samples if rows > 0 and seconds > 0]
    slopes = [
        (more_s - seconds) / (more - rows) for rows, seconds in known for more, more_s in known if more >= 2 * rows
    ]
    slope = float(np.median(slopes)) if slopes else 0.0
    groups = [known[start : start + together] for start in range(0, len(known), together)]
    sums = [(sum(rows for rows, _ in group), sum(seconds for _, seconds in group)) for group in groups]
    wanted = quantile * sum(rows for rows, _ in sums)
    reached = 0
    for cost, rows in sorted((seconds / rows, rows) for rows, seconds in sums):
        reached += rows
        if reached > wanted:
            return min(cost, slope) if slope > 0 else cost
    return None


class ServiceSample(NamedTuple):
    """Individually timed rows: their number, the sum of their times, and the sum of the squared times."""

    rows: int
    seconds: float
    squares_s2: float

    def __sub__(self, earlier: ServiceSample) -> ServiceSample:
        return ServiceSample(
            self.rows - earlier.rows, self.seconds - earlier.seconds, self.squares_s2 - earlier.squares_s2
        )


def service_moments(samples: Iterable[ServiceSample]) -> tuple[float, float] | None:
    """Return the mean (s) and the squared coefficient of variation of the time per row; None for fewer than two rows.

    >>> mean_s, scv = service_moments([ServiceSample(3, 6.0, 14.0)])  # 1, 2 and 3 s: variance 1
    >>> mean_s, scv
    (2.0, 0.25)
    """
    known = [sample for sample in samples if sample.rows]
    rows = sum(sample.rows for sample in known)
    total_s = sum(sample.seconds for sample in known)
    if rows < 2 or total_s <= 0:
        return None
    mean_s = total_s / rows
    variance_s2 = max(0.0, sum(sample.squares_s2 for sample in known) - rows * mean_s**2) / (rows - 1)
    return mean_s, variance_s2 / mean_s**2
