"""A candidate with its weights: predictions, and the peak effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.capacity_steps import effective_vms
from penstock.models.mst.curve_families import CurveFamily
from penstock.models.mst.least_squares import FitSums, Weighting, fit_sums, relative_rmse
from penstock.models.mst.samples import MAX_VMS, Floats, SamplesError, ThroughputSamples


def running_maximum(predicted: Floats) -> Floats:
    """The peak effect: nobody rents more VMs to get less, so past its peak a curve is flat."""
    result: Floats = np.maximum.accumulate(predicted, axis=-1)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCurve:
    """One curve. `step` 0 means that capacity grows with every VM."""

    candidate: CurveFamily
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
        counts = check_vm_counts(vms)
        curve = running_maximum(self.raw(np.arange(1.0, max(counts) + 1)))
        chosen: Floats = curve[np.array(counts) - 1]
        return chosen


def check_vm_counts(vms: Iterable[int]) -> list[int]:
    counts = list(vms)
    if not counts or min(counts) < 1 or max(counts) > MAX_VMS:
        raise SamplesError(
            f"asked to predict MST on {counts} VMs; give at least one VM count, each at least 1 and at most {MAX_VMS}"
        )
    return counts


def fit_and_predict(candidate: CurveFamily, vms: Floats, sums: FitSums, step: float, at: Floats) -> Floats:
    """Fit a batch and predict it at `at`, without the running maximum."""
    weights = candidate.fit(effective_vms(vms, step), sums)
    return candidate.predict(weights, effective_vms(at, step))


def fit_curve(
    candidate: CurveFamily, samples: ThroughputSamples, *, step: float = 0.0, weighting: Weighting = Weighting.RELATIVE
) -> FittedCurve:
    """Least squares on single samples with non-negative weights.

    >>> from penstock.models.mst.curve_families import AMDAHL
    >>> perfect = ThroughputSamples.of("linear", {m: [3.0 * m] for m in (1, 2, 4, 8)})
    >>> fit_curve(AMDAHL, perfect).predict([100]).round(6).tolist()
    [300.0]
    """
    vms = np.array(samples.vms, dtype=float)
    sums = fit_sums(samples.padded(), candidate.link, weighting)
    weights = candidate.fit(effective_vms(vms, step), sums)
    predicted = candidate.predict(weights, effective_vms(vms, step))
    return FittedCurve(
        candidate=candidate,
        weights=tuple(float(w) for w in weights),
        step=step,
        train_rmse=relative_rmse(predicted, samples),
    )
