"""Sums over samples from which a curve is fitted by (weighted) least squares, and the errors of a fitted curve."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from penstock.models.mst.samples import Floats, ThroughputSamples


class Link(Enum):
    """The space in which a curve family is linear: MST, 1/MST (a time) or log MST."""

    IDENTITY = "identity"
    RECIPROCAL = "reciprocal"
    LOG = "log"


class Weighting(Enum):
    """The error that a fit minimises.

    ABSOLUTE: squared error in the link space, as in the paper. In 1/MST the smallest VM counts dominate, in MST the
    largest. RELATIVE: squared relative error, which weights all VM counts alike.
    """

    ABSOLUTE = "absolute"
    RELATIVE = "relative"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSums:
    """Sufficient statistics of a least-squares fit, of shape (..., counts).

    Each field is a sum over the samples at one VM count. The terms are the weight, weight x target, and weight x
    target^2. Leading axes are a batch (applications, subsets or resamples).
    """

    weights: Floats
    targets: Floats
    squares: Floats

    def restricted_to(self, selected: Floats) -> FitSums:
        """Return the sums of the VM counts that `selected` marks with 1; the others, marked with 0, do not count."""
        return FitSums(
            weights=self.weights * selected, targets=self.targets * selected, squares=self.squares * selected
        )


def fit_sums(throughput: Floats, link: Link, weighting: Weighting) -> FitSums:
    """Return the sums of samples of shape (..., counts, samples), in which NaN marks a missing sample.

    A relative error of the throughput y is, to first order, y d(1/y) in 1/MST and d(log y) in log MST.

    >>> sums = fit_sums(np.array([[2.0, 4.0], [5.0, np.nan]]), Link.IDENTITY, Weighting.ABSOLUTE)
    >>> sums.weights.tolist(), sums.targets.tolist()
    ([2.0, 1.0], [6.0, 5.0])
    """
    y = throughput
    target, weight = {
        Link.IDENTITY: (y, 1 / y),
        Link.RECIPROCAL: (1 / y, y),
        Link.LOG: (np.log(y), np.ones_like(y)),
    }[link]
    squared = weight**2 if weighting is Weighting.RELATIVE else np.ones_like(y)
    present = np.where(np.isnan(y), 0.0, squared)
    target = np.where(np.isnan(y), 0.0, target)
    return FitSums(weights=present.sum(-1), targets=(present * target).sum(-1), squares=(present * target**2).sum(-1))


def relative_rmse(predicted: Floats, samples: ThroughputSamples) -> float:
    """Return the root mean square of (predicted - sample) / sample; `predicted[i]` is for `samples.vms[i]`.

    >>> relative_rmse(np.array([11.0, 18.0]), ThroughputSamples.of("grep", {1: [10.0], 2: [20.0]}))
    0.1
    """
    return float(np.sqrt(np.mean(_relative_errors(predicted, samples) ** 2)))


def absolute_rmse(predicted: Floats, samples: ThroughputSamples) -> float:
    """Return the root mean square of predicted - sample, in the unit of the samples."""
    errors = np.concatenate([p - np.array(values) for p, values in zip(predicted, samples.throughput, strict=True)])
    return float(np.sqrt(np.mean(errors**2)))


def mape(predicted: Floats, samples: ThroughputSamples) -> float:
    """Return the mean absolute percentage error over single samples (Imai et al. 2017, equation 10), in percent."""
    return 100 * float(np.mean(np.abs(_relative_errors(predicted, samples))))


def _relative_errors(predicted: Floats, samples: ThroughputSamples) -> Floats:
    return np.concatenate(
        [(p - np.array(values)) / values for p, values in zip(predicted, samples.throughput, strict=True)]
    )
