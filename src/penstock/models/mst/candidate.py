"""What every MST model can do, what it is fitted to, and the kind that is linear in its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from penstock.models.mst.nnls import nnls
from penstock.models.mst.samples import Floats, Samples


class Link(Enum):
    """The space in which a model is linear: T = MST, 1/MST (a time) or log MST."""

    IDENTITY = "identity"
    RECIPROCAL = "reciprocal"
    LOG = "log"


class Weighting(Enum):
    """What a fit minimises.

    ABSOLUTE: squared error in the model's own space, as the paper does. In 1/MST that heeds little but the smallest VM
    counts, in MST little but the largest. RELATIVE: squared relative error, alike at every VM count.
    """

    ABSOLUTE = "absolute"
    RELATIVE = "relative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """All that a least-squares fit needs to know of the samples: per VM count, over its samples, sums of weight^2
    times 1, target and target^2. Leading axes are a batch (applications, subsets, resamples)."""

    ones: Floats
    targets: Floats
    squares: Floats

    def at(self, chosen: Floats) -> Moments:
        """Counts weighted by `chosen`, (..., counts) of 0 or 1: how a subset of VM counts is told."""
        return Moments(ones=self.ones * chosen, targets=self.targets * chosen, squares=self.squares * chosen)


def moments(throughput: Floats, link: Link, weighting: Weighting) -> Moments:
    """`throughput` (..., counts, samples), NaN for a sample that is not there.

    A relative error in MST is, to first order, y * d(1/y) in 1/MST and d(log y) in log MST.
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
    return Moments(ones=present.sum(-1), targets=(present * target).sum(-1), squares=(present * target**2).sum(-1))


class Candidate(Protocol):
    """A family of curves. `vms` are effective VM counts, (counts,); weights and predictions have the batch in front."""

    @property
    def name(self) -> str: ...

    @property
    def link(self) -> Link: ...

    @property
    def parameters(self) -> int: ...

    def fit(self, vms: Floats, sums: Moments) -> Floats: ...

    def predict(self, weights: Floats, vms: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCandidate:
    """link(MST(m)) = w . features(m) with every w >= 0."""

    name: str
    link: Link
    features: Callable[[Floats], Floats]  # (counts,) -> (counts, terms)
    parameters: int

    def fit(self, vms: Floats, sums: Moments) -> Floats:
        x = self.features(vms)
        return nnls((x.T * sums.ones[..., None, :]) @ x, sums.targets @ x)

    def predict(self, weights: Floats, vms: Floats) -> Floats:
        linear: Floats = weights @ self.features(vms).T
        if self.link is Link.RECIPROCAL:
            # A time of 0 (USL with crosstalk alone, on one VM) is no throughput to compute with.
            return 1 / np.maximum(linear, 1e-100)
        return np.exp(linear) if self.link is Link.LOG else linear


def relative_rmse(predicted: Floats, samples: Samples) -> float:
    """Root mean square of (predicted - sample) / sample; `predicted` goes by the samples' VM counts."""
    errors = np.concatenate(
        [(p - np.array(values)) / values for p, values in zip(predicted, samples.throughput, strict=True)]
    )
    return float(np.sqrt(np.mean(errors**2)))


def absolute_rmse(predicted: Floats, samples: Samples) -> float:
    errors = np.concatenate([p - np.array(values) for p, values in zip(predicted, samples.throughput, strict=True)])
    return float(np.sqrt(np.mean(errors**2)))


def mape(predicted: Floats, samples: Samples) -> float:
    """Mean absolute percentage error over single samples (equation 10 of the paper), in percent."""
    errors = np.concatenate(
        [np.abs(p - np.array(values)) / values for p, values in zip(predicted, samples.throughput, strict=True)]
    )
    return 100 * float(np.mean(errors))
