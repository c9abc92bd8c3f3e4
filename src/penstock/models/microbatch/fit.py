"""Fit the micro-batch model to samples of (rows, replicas, batch time).

Estimates are the non-negative least squares of D on (1, n / min(k, slots), k). Intervals are Student's t intervals of
the ordinary least squares fit, for equal, independent and roughly normal errors. They are cut at 0, because no
parameter is negative, and cover the truth with probability `level` for any sample size. D* is a ratio of two linear
forms of the parameters, so its interval is Fieller's, which has no upper end if the data do not exclude saturation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit  # quantiles of Student's t; scipy.stats takes twice as long to import

from penstock.models.microbatch.station import MicroBatch
from penstock.models.queueing.errors import ModelError, count, not_negative, positive, probability

# For columns of length 1. Above this condition number, noise determines the parameters instead of the design.
_MAX_CONDITION = 1e3


class BatchSample(NamedTuple):
    """The measured time of one batch."""

    rows: float
    replicas: int
    batch_s: float


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchFit:
    """The fitted parameters with intervals. `level` is the coverage of every interval."""

    batch_s: Interval  # a
    row_s: Interval  # c
    replica_s: Interval  # b
    slots: int | None
    samples: int
    residual_s: float  # standard deviation of a batch time about the model
    level: float
    covariance: tuple[tuple[float, ...], ...]  # covariance of the least squares estimates of (a, c, b)
    least_squares: tuple[float, ...]

    def station(self, arrival_per_s: float) -> MicroBatch:
        return MicroBatch(
            arrival_per_s=arrival_per_s,
            batch_s=self.batch_s.value,
            row_s=self.row_s.value,
            replica_s=self.replica_s.value,
            slots=self.slots,
        )

    def predict_batch_s(self, rows: float, replicas: int) -> Interval:
        """Return the time of one further batch, with the interval for that batch (not for the mean)."""
        x = np.array([1.0, rows / _at_once(replicas, self.slots), replicas])
        spread = self._t() * math.sqrt(self.residual_s**2 + self._variance(x))
        middle = float(x @ np.array(self.least_squares))
        value = self.station(0.0).batch_time_s(rows, replicas)
        return Interval(min(value, max(0.0, middle - spread)), value, max(value, middle + spread))

    def predict_latency_s(self, arrival_per_s: float, replicas: int) -> Interval:
        """Return the mean latency 1.5 D* at this rate. The upper end is infinite if saturation cannot be excluded."""
        value = self.station(arrival_per_s).mean_s(replicas)
        # D is in the interval if the form  (a + b k) - D (1 - lambda C)  is within t standard errors of 0.
        fixed = np.array([1.0, 0.0, replicas])
        load = np.array([0.0, arrival_per_s / _at_once(replicas, self.slots), 0.0])
        estimate, t2 = np.array(self.least_squares), self._t() ** 2
        cov = np.array(self.covariance)
        numerator, slack = float(fixed @ estimate), 1.0 - float(load @ estimate)
        # (numerator - D slack)^2 <= t2 Var(fixed + D load): a quadratic in D.
        a2 = slack**2 - t2 * float(load @ cov @ load)
        a1 = -2.0 * (numerator * slack + t2 * float(fixed @ cov @ load))
        a0 = numerator**2 - t2 * float(fixed @ cov @ fixed)
        root = math.sqrt(max(0.0, a1**2 - 4.0 * a2 * a0))
        if a2 > 0.0 and slack > 0.0:
            low, high = (-a1 - root) / (2.0 * a2), (-a1 + root) / (2.0 * a2)
        else:  # the interval of the load contains 1, so there is no upper end
            low, high = (2.0 * a0 / (root - a1) if a0 > 0.0 and root > a1 else 0.0), math.inf
        return Interval(min(value, max(0.0, 1.5 * low)), value, max(value, 1.5 * high))

    def _t(self) -> float:
        return float(stdtrit(self.samples - 3, 0.5 + self.level / 2.0))

    def _variance(self, x: np.ndarray) -> float:
        return float(x @ np.array(self.covariance) @ x)


def _at_once(replicas: int, slots: int | None) -> int:
    return replicas if slots is None else min(replicas, slots)


def fit_microbatch(samples: Sequence[BatchSample], slots: int | None = None, level: float = 0.95) -> MicroBatchFit:
    """Fit the model; raise a ModelError if the samples do not determine its parameters.

    >>> truth = MicroBatch(arrival_per_s=0.0, batch_s=0.1, row_s=0.001, replica_s=0.02)
    >>> design = [(n, k) for n in (100, 1000, 5000) for k in (1, 2, 8)]
    >>> fit = fit_microbatch([BatchSample(n, k, truth.batch_time_s(n, k)) for n, k in design])
    >>> [round(x.value, 6) for x in (fit.batch_s, fit.row_s, fit.replica_s)]
    [0.1, 0.001, 0.02]
    """
    probability("the level of the intervals", level)
    for i, sample in enumerate(samples):
        not_negative(f"the rows of sample {i}", sample.rows)
        count(f"the replicas of sample {i}", sample.replicas)
        positive(f"the batch time of sample {i} (s)", sample.batch_s)
    if len(samples) < 4:
        raise ModelError(f"{len(samples)} samples are too few for three parameters and their error. Give at least 4.")
    x = np.array([[1.0, s.rows / _at_once(s.replicas, slots), s.replicas] for s in samples])
    y = np.array([s.batch_s for s in samples])
    lengths = np.linalg.norm(x, axis=0)
    _refuse_unidentifiable(samples, x, lengths)
    estimate = nnls(x / lengths, y)[0] / lengths
    inverse = np.linalg.inv((x / lengths).T @ (x / lengths)) / np.outer(lengths, lengths)
    ordinary = np.linalg.lstsq(x / lengths, y, rcond=None)[0] / lengths
    freedom = len(samples) - 3
    variance = float(((y - x @ ordinary) ** 2).sum()) / freedom
    half = float(stdtrit(freedom, 0.5 + level / 2.0)) * np.sqrt(variance * np.diag(inverse))
    a, c, b = (
        Interval(max(0.0, min(float(e), float(o - h))), float(e), max(float(e), float(o + h)))
        for o, e, h in zip(ordinary, estimate, half, strict=True)
    )
    if a.value + b.value <= 0:
        raise ModelError("The samples imply that an empty batch takes no time. Add samples of small batches.")
    return MicroBatchFit(
        batch_s=a,
        row_s=c,
        replica_s=b,
        slots=slots,
        samples=len(samples),
        residual_s=math.sqrt(variance),
        level=level,
        covariance=tuple(tuple(float(v) for v in row) for row in variance * inverse),
        least_squares=tuple(float(v) for v in ordinary),
    )


def _refuse_unidentifiable(samples: Sequence[BatchSample], x: np.ndarray, lengths: np.ndarray) -> None:
    if not any(s.rows for s in samples):
        raise ModelError("All samples are empty batches, so the work per row is unknown. Add batches with rows.")
    if len({s.replicas for s in samples}) == 1:
        raise ModelError(
            f"All samples have {samples[0].replicas} replicas, so the fixed time per batch and the time per replica "
            "cannot be distinguished. Add samples with another number of replicas."
        )
    condition = float(np.linalg.cond(x / lengths))
    if not condition < _MAX_CONDITION:
        raise ModelError(
            f"Rows and replicas are nearly collinear in the samples (condition number {condition:.3g}, at most "
            f"{_MAX_CONDITION:g}), so the parameters cannot be distinguished. Add small and large batches with few and "
            "with many replicas."
        )
