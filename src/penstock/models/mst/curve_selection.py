"""Phase 2 of Imai et al. (2017): weight the curve families by their errors at VM counts not used for fitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.fitted_curve import FittedCurve, fit_curve, running_maximum
from penstock.models.mst.least_squares import Weighting, absolute_rmse, relative_rmse
from penstock.models.mst.samples import MAX_VMS, Floats, SamplesError, ThroughputSamples

# Added to every error before families are weighted by it. Errors below the noise of a few samples are equal.
_EQUAL_ERROR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSelection:
    """The fitted curves and their shares. `errors` are those of the families, fitted to the counts `trained` only."""

    chosen: FittedCurve  # the curve with the largest share
    curves: tuple[FittedCurve, ...]
    shares: tuple[float, ...]  # of each curve in the prediction; they add up to 1
    errors: dict[str, float]
    trained: tuple[int, ...]
    validated: tuple[int, ...]  # empty: the errors at the largest counts decided

    def predict(self, vms: Floats) -> Floats:
        """Return the MST at the VM counts 1, 2, 3, ...: the geometric mean of the curves, weighted by their shares."""
        used = [(share, curve) for share, curve in zip(self.shares, self.curves, strict=True) if share > 0]
        logs = sum(share * np.log(running_maximum(curve.raw(vms))) for share, curve in used)
        predicted: Floats = np.exp(logs)
        return predicted


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

    Without validation counts it is unknown which family extrapolates best, so the prediction is a mean of all families.
    A family has a large share if it predicts the largest counts well from the smaller ones. (The paper uses the
    training error in this case, which favours families with many parameters.) With `refit` the curves are finally
    fitted to all samples, including those for validation. `steps` are candidate capacity steps in VMs.
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
        errors = {c.name: forward_error(c, training, step=step, weighting=weighting) for c in families}
    # Nested families often give the same curve: Amdahl's law is Model 1 without communication. Among families within
    # 0.1% of the smallest error, select the one with the fewest parameters.
    smallest = min(errors.values())
    close = [family for family in families if errors[family.name] <= 1.001 * smallest + 1e-12]
    selected = min(close, key=lambda family: (family.parameters, errors[family.name]))
    if validation:
        shares = [float(family is selected) for family in families]
    else:
        shares = family_shares(np.array([errors[family.name] for family in families])).tolist()
    final = samples if refit else training
    curves = tuple(fit_curve(family, final, step=step, weighting=weighting) for family in families)
    return CurveSelection(
        chosen=curves[list(families).index(selected)],
        curves=curves,
        shares=tuple(shares),
        errors=errors,
        trained=training.vms,
        validated=tuple(sorted(set(validation))),
    )


def family_shares(errors: Floats) -> Floats:
    """Return the share of each family, from errors of shape (families, ...): proportional to 1 / error^2.

    >>> family_shares(np.array([0.08, 0.08, 0.18])).round(3).tolist()
    [0.444, 0.444, 0.111]
    """
    with np.errstate(over="ignore"):
        weights = 1.0 / (errors + _EQUAL_ERROR) ** 2
    shares: Floats = weights / weights.sum(0)
    return shares


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


def forward_folds(counts: int) -> list[int]:
    """Return how many of the smallest VM counts each fold is fitted to; the others are predicted.

    >>> forward_folds(5)
    [2, 3, 4]
    """
    return list(range(min(2, counts - 1), counts)) if counts > 1 else []


def forward_error(family: CurveFamily, samples: ThroughputSamples, *, step: float, weighting: Weighting) -> float:
    """Return the relative RMSE of the larger VM counts predicted from the smaller ones (see `forward_folds`).

    Each predicted VM count has the same weight. A single count has its training error.
    """
    folds = forward_folds(len(samples.vms))
    if not folds:
        return fit_curve(family, samples, step=step, weighting=weighting).train_rmse
    squares = []
    for fitted_counts in folds:
        fitted = fit_curve(family, samples.only(samples.vms[:fitted_counts]), step=step, weighting=weighting)
        for count in samples.vms[fitted_counts:]:
            held_out = samples.only([count])
            squares.append(relative_rmse(fitted.predict(held_out.vms), held_out) ** 2)
    return float(np.sqrt(np.mean(squares)))
