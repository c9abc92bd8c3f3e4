"""Phase 2 of Imai et al. (2017): select the curve family with the smallest error at VM counts not used for fitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.fitted_curve import FittedCurve, fit_curve
from penstock.models.mst.least_squares import Weighting, absolute_rmse, relative_rmse
from penstock.models.mst.samples import MAX_VMS, SamplesError, ThroughputSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSelection:
    """The selected curve. `errors` are those of all families, fitted to the VM counts `trained` only."""

    chosen: FittedCurve
    errors: dict[str, float]
    trained: tuple[int, ...]
    validated: tuple[int, ...]  # empty: leave-one-out errors decided


def select_curve(
    samples: ThroughputSamples,
    *,
    validation: Sequence[int] = (),
    families: Sequence[CurveFamily] = CURVE_FAMILIES,
    steps: Sequence[float] = (0.0,),
    weighting: Weighting = Weighting.RELATIVE,
    refit: bool = True,
) -> CurveSelection:
    """Fit every family without the `validation` counts and select the one with the smallest RMSE at these counts.

    Without validation counts, each count in turn is predicted from the others. (The paper uses the training error in
    this case, which favours families with many parameters.) With `refit` the selected family is finally fitted to all
    samples, including those for validation. `steps` are candidate capacity steps in VMs.
    """
    for step in steps:
        if not 0 <= step <= MAX_VMS:
            raise SamplesError(f"The step is {step} VMs. It must be a number from 0 (no steps) to {MAX_VMS}.")
    training = samples.without(validation)
    if not training.vms:
        raise SamplesError(f"All VM counts of app '{samples.app}' are used for validation. Leave some for training.")
    step = choose_step(training, families=families, steps=steps, weighting=weighting)
    if validation:
        held_out = samples.only(validation)
        rmse = relative_rmse if weighting is Weighting.RELATIVE else absolute_rmse
        errors = {}
        for family in families:
            fitted = fit_curve(family, training, step=step, weighting=weighting)
            errors[family.name] = rmse(fitted.predict(held_out.vms), held_out)
    else:
        errors = {c.name: leave_one_out(c, training, step=step, weighting=weighting) for c in families}
    # Nested families often give the same curve: Amdahl's law is Model 1 without communication. Among families within
    # 0.1% of the smallest error, select the one with the fewest parameters.
    smallest = min(errors.values())
    close = [family for family in families if errors[family.name] <= 1.001 * smallest + 1e-12]
    selected = min(close, key=lambda family: (family.parameters, errors[family.name]))
    return CurveSelection(
        chosen=fit_curve(selected, samples if refit else training, step=step, weighting=weighting),
        errors=errors,
        trained=training.vms,
        validated=tuple(sorted(set(validation))),
    )


def choose_step(
    samples: ThroughputSamples,
    *,
    families: Sequence[CurveFamily] = CURVE_FAMILIES,
    steps: Sequence[float],
    weighting: Weighting = Weighting.RELATIVE,
) -> float:
    """Return the step for which the best family has the smallest training error; the earlier one of similar steps."""
    if len(steps) == 1:
        return steps[0]

    def smallest_error(step: float) -> float:
        return min(fit_curve(c, samples, step=step, weighting=weighting).train_rmse for c in families)

    errors = [smallest_error(step) for step in steps]
    # 2%: a step must be visible beyond the noise of the samples.
    return next(step for step, error in zip(steps, errors, strict=True) if error <= 1.02 * min(errors))


def leave_one_out(family: CurveFamily, samples: ThroughputSamples, *, step: float, weighting: Weighting) -> float:
    """Return the relative RMSE of each VM count predicted from the others (the training error of a single count)."""
    if len(samples.vms) < 2:
        return fit_curve(family, samples, step=step, weighting=weighting).train_rmse
    squares, number = 0.0, 0
    for count in samples.vms:
        fitted = fit_curve(family, samples.without([count]), step=step, weighting=weighting)
        held_out = samples.only([count])
        squares += relative_rmse(fitted.predict(held_out.vms), held_out) ** 2 * len(held_out.throughput[0])
        number += len(held_out.throughput[0])
    return float(np.sqrt(squares / number))
