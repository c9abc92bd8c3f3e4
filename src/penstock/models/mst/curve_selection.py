"""Phase 2: which candidate to believe, judged on VM counts that it was not fitted to."""

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
    """`chosen` is fitted to all the samples; `errors` judged the candidates when they were fitted to `trained` only."""

    chosen: FittedCurve
    errors: dict[str, float]
    trained: tuple[int, ...]
    validated: tuple[int, ...]  # empty: leave-one-count-out errors decided


def select_curve(
    samples: ThroughputSamples,
    *,
    validation: Sequence[int] = (),
    candidates: Sequence[CurveFamily] = CURVE_FAMILIES,
    steps: Sequence[float] = (0.0,),
    weighting: Weighting = Weighting.RELATIVE,
    refit: bool = True,
) -> CurveSelection:
    """Fit every candidate to the samples that are not at `validation` counts, keep the one with the least RMSE there.

    Without validation counts each count in turn is predicted from the others: the training error, which the paper falls
    back on, favours whoever has most parameters. With `refit` the winner then learns from the validation samples too.
    """
    for step in steps:
        if not 0 <= step <= MAX_VMS:
            raise SamplesError(f"a step of {step} VMs was given; it must be a number from 0 (no steps) to {MAX_VMS}")
    training = samples.without(validation)
    if not training.vms:
        raise SamplesError(f"all VM counts of app '{samples.app}' are for validation; leave some to train on")
    step = choose_step(training, candidates=candidates, steps=steps, weighting=weighting)
    if validation:
        held_out = samples.only(validation)
        rmse = relative_rmse if weighting is Weighting.RELATIVE else absolute_rmse
        errors = {}
        for candidate in candidates:
            fitted = fit_curve(candidate, training, step=step, weighting=weighting)
            errors[candidate.name] = rmse(fitted.predict(held_out.vms), held_out)
    else:
        errors = {c.name: leave_one_out(c, training, step=step, weighting=weighting) for c in candidates}
    # Nested candidates often find the very same curve (Amdahl's is Model 1's where nothing is lost to communication):
    # of those within a thousandth of the best, the one with the fewest parameters.
    least = min(errors.values())
    close = [candidate for candidate in candidates if errors[candidate.name] <= 1.001 * least + 1e-12]
    winner = min(close, key=lambda candidate: (candidate.parameters, errors[candidate.name]))
    return CurveSelection(
        chosen=fit_curve(winner, samples if refit else training, step=step, weighting=weighting),
        errors=errors,
        trained=training.vms,
        validated=tuple(sorted(set(validation))),
    )


def choose_step(
    samples: ThroughputSamples,
    *,
    candidates: Sequence[CurveFamily] = CURVE_FAMILIES,
    steps: Sequence[float],
    weighting: Weighting = Weighting.RELATIVE,
) -> float:
    """The step with which the best candidate fits the samples best; the earlier one where that makes no difference."""
    if len(steps) == 1:
        return steps[0]

    def least(step: float) -> float:
        return min(fit_curve(c, samples, step=step, weighting=weighting).train_rmse for c in candidates)

    errors = [least(step) for step in steps]
    # 2%: a step must show in the samples, not in their noise.
    return next(step for step, error in zip(steps, errors, strict=True) if error <= 1.02 * min(errors))


def leave_one_out(candidate: CurveFamily, samples: ThroughputSamples, *, step: float, weighting: Weighting) -> float:
    """Relative RMSE when each VM count is predicted from the others; the training error of a single count."""
    if len(samples.vms) < 2:
        return fit_curve(candidate, samples, step=step, weighting=weighting).train_rmse
    squares, number = 0.0, 0
    for count in samples.vms:
        fitted = fit_curve(candidate, samples.without([count]), step=step, weighting=weighting)
        out = samples.only([count])
        squares += relative_rmse(fitted.predict(out.vms), out) ** 2 * len(out.throughput[0])
        number += len(out.throughput[0])
    return float(np.sqrt(squares / number))
