"""A curve family fitted to samples.

The capacity may grow in steps: VMs add capacity only if every processing unit gets another thread (Imai et al. 2017).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.curve_families import CurveFamily
from penstock.models.mst.least_squares import FitSums, Weighting, fit_sums, relative_rmse
from penstock.models.mst.samples import MAX_VMS, Floats, SamplesError, ThroughputSamples


def vms_per_step(units: int, cpus_per_vm: int) -> float:
    """Return the VMs per capacity step: units / cpus_per_vm.

    Each of `units` processing units has max(1, floor(m cpus / units)) threads on m VMs with one thread per vCPU
    (equation 1), so one more thread for every unit needs units / cpus VMs.

    >>> vms_per_step(units=3, cpus_per_vm=2)
    1.5
    """
    if units < 1 or cpus_per_vm < 1:
        raise SamplesError(f"There are {units} units and {cpus_per_vm} vCPUs per VM. Both must be at least 1.")
    return units / cpus_per_vm


def effective_vms(vms: Floats, step: float) -> Floats:
    """Return the VMs that threads use: step * max(1, floor(m / step)); all VMs if `step` is 0.

    >>> effective_vms(np.arange(1.0, 9.0), 1.5).tolist()
    [1.5, 1.5, 3.0, 3.0, 4.5, 6.0, 6.0, 7.5]
    """
    if step == 0:
        return vms
    # 1e-9: 4.5 / 1.5 must not be rounded down to 2 because of binary fractions.
    return step * np.maximum(1.0, np.floor(vms / step + 1e-9))


def running_maximum(predicted: Floats) -> Floats:
    """Return the running maximum over VM counts. A curve is flat after its peak, because fewer VMs can be used."""
    result: Floats = np.maximum.accumulate(predicted, axis=-1)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCurve:
    """A curve MST(m). A `step` of 0 means that capacity grows with every VM."""

    family: CurveFamily
    weights: tuple[float, ...]
    step: float
    train_rmse: float  # relative error over single samples, without the running maximum

    @property
    def name(self) -> str:
        return self.family.name

    def raw(self, vms: Floats) -> Floats:
        """Return the MST at these VM counts without the running maximum."""
        return self.family.predict(np.array(self.weights), effective_vms(vms, self.step))

    def predict(self, vms: Sequence[int] | range) -> Floats:
        """Return the MST at these VM counts, as the running maximum over 1, 2, 3, ... VMs."""
        counts = check_vm_counts(vms)
        curve = running_maximum(self.raw(np.arange(1.0, max(counts) + 1)))
        predicted: Floats = curve[np.array(counts) - 1]
        return predicted


def check_vm_counts(vms: Iterable[int]) -> list[int]:
    """Return the VM counts as a list; raise a SamplesError if there is none or one is out of range."""
    counts = list(vms)
    if not counts or min(counts) < 1 or max(counts) > MAX_VMS:
        raise SamplesError(
            f"The MST was requested for {counts} VMs. Give one or more VM counts of at least 1 and at most {MAX_VMS}."
        )
    return counts


def fit_and_predict(family: CurveFamily, vms: Floats, sums: FitSums, step: float, at: Floats) -> Floats:
    """Fit a batch of curves and predict them at the VM counts `at`, without the running maximum."""
    weights = family.fit(effective_vms(vms, step), sums)
    return family.predict(weights, effective_vms(at, step))


def fit_curve(
    family: CurveFamily, samples: ThroughputSamples, *, step: float = 0.0, weighting: Weighting = Weighting.RELATIVE
) -> FittedCurve:
    """Fit a family to single samples by least squares with non-negative weights.

    >>> from penstock.models.mst.curve_families import AMDAHL
    >>> perfect = ThroughputSamples.of("linear", {m: [3.0 * m] for m in (1, 2, 4, 8)})
    >>> fit_curve(AMDAHL, perfect).predict([100]).round(6).tolist()
    [300.0]
    """
    vms = np.array(samples.vms, dtype=float)
    sums = fit_sums(samples.padded(), family.link, weighting)
    weights = family.fit(effective_vms(vms, step), sums)
    predicted = family.predict(weights, effective_vms(vms, step))
    return FittedCurve(
        family=family,
        weights=tuple(float(w) for w in weights),
        step=step,
        train_rmse=relative_rmse(predicted, samples),
    )
