"""A candidate with its weights: predictions, and the peak effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.amdahl import AMDAHL
from penstock.models.mst.candidate import Candidate, Moments, Weighting, moments, relative_rmse
from penstock.models.mst.errors import SamplesError
from penstock.models.mst.model1 import MODEL1
from penstock.models.mst.model2 import MODEL2
from penstock.models.mst.power import POWER
from penstock.models.mst.roofline import ROOFLINE
from penstock.models.mst.samples import MAX_VMS, Floats, Samples
from penstock.models.mst.steps import effective_vms
from penstock.models.mst.usl import USL

PAPER_CANDIDATES: tuple[Candidate, ...] = (MODEL1, MODEL2)
CANDIDATES: tuple[Candidate, ...] = (MODEL1, MODEL2, AMDAHL, USL, POWER, ROOFLINE)


def running_maximum(predicted: Floats) -> Floats:
    """The peak effect: nobody rents more VMs to get less, so past its peak a curve is flat."""
    result: Floats = np.maximum.accumulate(predicted, axis=-1)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One curve. `step` 0 means that capacity grows with every VM."""

    candidate: Candidate
    weights: tuple[float, ...]
    step: float
    train_rmse: float  # relative, over single samples, without the running maximum

    @property
    def name(self) -> str:
        return self.candidate.name

    def raw(self, vms: Floats) -> Floats:
        return self.candidate.predict(np.array(self.weights), effective_vms(vms, self.step))

    def predict(self, vms: Sequence[int] | range) -> Floats:
        """MST at these VM counts; the running maximum is taken over 1, 2, 3, ... VMs."""
        counts = checked_counts(vms)
        curve = running_maximum(self.raw(np.arange(1.0, max(counts) + 1)))
        chosen: Floats = curve[np.array(counts) - 1]
        return chosen


def checked_counts(vms: Iterable[int]) -> list[int]:
    counts = list(vms)
    if not counts or min(counts) < 1 or max(counts) > MAX_VMS:
        raise SamplesError(
            f"asked to predict MST on {counts} VMs; give at least one VM count, each at least 1 and at most {MAX_VMS}"
        )
    return counts


def curves(candidate: Candidate, vms: Floats, sums: Moments, step: float, at: Floats) -> Floats:
    """Fit a batch and predict it at `at`, without the running maximum."""
    weights = candidate.fit(effective_vms(vms, step), sums)
    return candidate.predict(weights, effective_vms(at, step))


def fit_candidate(
    candidate: Candidate, samples: Samples, *, step: float = 0.0, weighting: Weighting = Weighting.RELATIVE
) -> Fitted:
    """Least squares on single samples with non-negative weights.

    >>> perfect = Samples.of("linear", {m: [3.0 * m] for m in (1, 2, 4, 8)})
    >>> fit_candidate(AMDAHL, perfect).predict([100]).round(6).tolist()
    [300.0]
    """
    vms = np.array(samples.vms, dtype=float)
    sums = moments(samples.padded(), candidate.link, weighting)
    weights = candidate.fit(effective_vms(vms, step), sums)
    predicted = candidate.predict(weights, effective_vms(vms, step))
    return Fitted(
        candidate=candidate,
        weights=tuple(float(w) for w in weights),
        step=step,
        train_rmse=relative_rmse(predicted, samples),
    )
