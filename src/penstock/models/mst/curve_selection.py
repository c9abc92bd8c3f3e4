"""Phase 2 of Imai et al. (2017): weight the curve families by their errors at VM counts not used for fitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.fitted_curve import FittedCurve, fit_curve, running_maximum
from penstock.models.mst.least_squares import Weighting, absolute_rmse, relative_rmse
from penstock.models.mst.samples import MAX_VMS, Floats, SamplesError, ThroughputSamples

# How a model is chosen without validation counts: a mean of all models, weighted by how well they predict the largest
# counts; the smallest error at the training counts, as in the paper; or the smallest error at counts left out in turn.
Choose = Literal["mean", "training", "leave-one-out"]
CHOOSE_METHODS: tuple[Choose, ...] = ("mean", "training", "leave-one-out")

# Added to every error before families are weighted by it. Errors below the noise of a few samples are equal.
_EQUAL_ERROR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSelection:
    """The fitted curves and their shares. `errors` has the error of each family after a fit to the counts `trained`."""

    chosen: FittedCurve  # the curve with the largest share
    curves: tuple[FittedCurve, ...]
    shares: tuple[float, ...]  # share of each curve in the prediction; the sum is 1
    errors: dict[str, float]
    trained: tuple[int, ...]
    validated: tuple[int, ...]  # empty: `choose` says which errors decided
    choose: Choose = "mean"

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
    choose: Choose = "mean",
) -> CurveSelection:
    """Fit every family without the `validation` counts and select the one with the smallest RMSE at these counts.

    Without validation counts it is unknown which family extrapolates best, so the prediction is a mean of all families.
    A family has a large share if it predicts the largest counts well from the smaller ones. Two other values of
    `choose` select one family instead: "training" by the training error, as the paper, which favours families with many
    parameters; "leave-one-out" by the error at each count, predicted from all others. With `refit` the curves are
    finally fitted to all samples, including those for validation. `steps` are candidate capacity steps in VMs.
    """
    for step in steps:
        if not 0 <= step <= MAX_VMS:
            raise SamplesError(f"The step is {step} VMs. It must be a number from 0 (no steps) to {MAX_VMS}.")
    training = samples.without(validation)
    if not training.vms:
        raise SamplesError(f"All VM counts of app '{samples.app}' are used for validation. Leave some for training.")
    step = choose_step(training, families=families, steps=steps, weighting=weighting)
    if validation or choose == "training":
        judged = samples.only(validation) if validation else training
        rmse = relative_rmse if weighting is Weighting.RELATIVE else absolute_rmse
        errors = {}
        for family in families:
            fitted = fit_curve(family, training, step=step, weighting=weighting)
            errors[family.name] = rmse(fitted.predict(judged.vms), judged)
    else:
        folds = folds_without_validation(len(training.vms), choose)
        errors = {c.name: fold_error(c, training, folds, step=step, weighting=weighting) for c in families}
    # Nested families often give the same curve: Amdahl's law is Model 1 without communication. Among families within
    # 0.1% of the smallest error, select the one with the fewest parameters.
    smallest = min(errors.values())
    close = [family for family in families if errors[family.name] <= 1.001 * smallest + 1e-12]
    selected = min(close, key=lambda family: (family.parameters, errors[family.name]))
    if validation or choose != "mean":
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
        choose=choose,
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


Fold = tuple[tuple[int, ...], tuple[int, ...]]  # indices of the VM counts to fit, and of those to predict


def folds_without_validation(counts: int, choose: Choose) -> list[Fold]:
    """Return the folds whose errors weight or select the families, in order of the VM counts.

    "mean": the larger counts from two or more of the smallest ones. "leave-one-out": each count from all others.
    "training", and any method with a single count: all counts from themselves.

    >>> folds_without_validation(4, "mean")
    [((0, 1), (2, 3)), ((0, 1, 2), (3,))]
    >>> folds_without_validation(3, "leave-one-out")
    [((1, 2), (0,)), ((0, 2), (1,)), ((0, 1), (2,))]
    """
    every = tuple(range(counts))
    if choose == "training" or counts < 2:
        return [(every, every)]
    if choose == "leave-one-out":
        return [(tuple(other for other in every if other != left), (left,)) for left in every]
    return [(every[:fitted], every[fitted:]) for fitted in range(min(2, counts - 1), counts)]


def fold_error(
    family: CurveFamily, samples: ThroughputSamples, folds: Sequence[Fold], *, step: float, weighting: Weighting
) -> float:
    """Return the relative RMSE of the predicted counts of all folds. Each predicted VM count has the same weight."""
    squares = []
    for fit_to, predicted in folds:
        fitted = fit_curve(family, samples.only(samples.vms[i] for i in fit_to), step=step, weighting=weighting)
        for index in predicted:
            held_out = samples.only([samples.vms[index]])
            squares.append(relative_rmse(fitted.predict(held_out.vms), held_out) ** 2)
    return float(np.sqrt(np.mean(squares)))
