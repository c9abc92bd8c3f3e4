"""The MST model of one application: the selected curves, corrected by nearby measurements, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.curve_selection import (
    Choose,
    CurveSelection,
    family_shares,
    fold_error,
    folds_without_validation,
    select_curve,
)
from penstock.models.mst.fitted_curve import check_vm_counts, fit_and_predict, running_maximum
from penstock.models.mst.least_squares import Weighting, fit_sums
from penstock.models.mst.samples import Floats, SamplesError, ThroughputSamples

# Doublings of the VM count over which the correlation of the curve's errors falls to 1/e: a sample on 64 VMs is
# informative for 80 VMs, but hardly for 128. Chosen on the applications of phase 1: the mean error at left-out counts
# is 13%, and 17% with the curve alone.
_CORRELATION_DOUBLINGS = 0.5
# Deviation of a curve that is expected before anything is measured, near the error on the applications of phase 1. It
# counts as much as one VM count, so that intervals from two or three counts are useful.
_EXPECTED_DEVIATION = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MstPrediction:
    """The predicted throughput on `vms` VMs. A new sample is between `low` and `high` with probability `level`."""

    vms: int
    throughput: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Relative standard deviations of samples within a VM count, and of the means of VM counts around the curve."""

    within: float
    within_freedom: int
    between: float
    between_freedom: int
    separated: bool = True  # False for one sample per VM count: `within` then contains both


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MstModel:
    """The MST of an application. Column m - 1 of `curve`, `mean_draws` and `sample_draws` is for m VMs.

    `curve` is the mean of the selected curves, moved towards the measurements at and near measured VM counts. Each row
    of `mean_draws` and `sample_draws` is one draw of the mean MST and of a single sample.
    """

    app: str
    selection: CurveSelection
    scatter: Scatter
    curve: Floats
    mean_draws: Floats
    sample_draws: Floats

    @property
    def max_vms(self) -> int:
        return len(self.curve)

    def predict(self, vms: Sequence[int], *, level: float = 0.9) -> tuple[MstPrediction, ...]:
        """Return the throughput of a new sample at each VM count, with its interval."""
        counts = check_vm_counts(vms)
        if max(counts) > self.max_vms:
            raise SamplesError(
                f"The model covers up to {self.max_vms} VMs, but {max(counts)} were requested. Raise max_vms."
            )
        low, high = _interval(self.sample_draws, self.curve, level)
        return tuple(
            MstPrediction(
                vms=m,
                throughput=float(self.curve[m - 1]),
                low=float(low[m - 1]),
                high=float(high[m - 1]),
                level=level,
            )
            for m in counts
        )

    def capacity(self, *, confidence: float) -> Floats:
        """Return the mean MST on 1, 2, ... VMs that is exceeded with probability `confidence`.

        The running maximum is taken, because quantiles of few draws are not monotonic.
        """
        if not 0 < confidence < 1:
            raise SamplesError(f"The confidence is {confidence}. It must be above 0 and below 1.")
        return running_maximum(np.quantile(self.mean_draws, 1 - confidence, axis=0))


def _interval(draws: Floats, curve: Floats, level: float) -> tuple[Floats, Floats]:
    if not 0 < level < 1:
        raise SamplesError(f"The level of the interval is {level}. It must be above 0 and below 1.")
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.minimum(low, curve), np.maximum(high, curve)


def fit_mst(
    samples: ThroughputSamples,
    *,
    max_vms: int,
    validation: Sequence[int] = (),
    steps: Sequence[float] = (0.0,),
    families: Sequence[CurveFamily] = CURVE_FAMILIES,
    choose: Choose = "mean",
    resamples: int = 1000,
    seed: int = 0,
) -> MstModel:
    """Select a curve, then repeat the selection on `resamples` redrawn sets of samples to obtain intervals.

    A set is redrawn from the mean of the selected curves: y = MST(m) exp(u_m + e). u_m ~ N(0, between^2) is the error
    of the curve at a VM count, e ~ N(0, within^2) that of a single sample. Both variances are drawn from the scaled
    inverse chi-square distribution of their estimates, so that few samples give wide intervals. A draw for
    m VMs is the redrawn curve at m with its own u_m and, for a single sample, its own e. Near a measured VM count u_m
    is partly known (see `_near_measured`).

    `validation`, `steps`, `families` and `choose` are those of `select_curve`. Raise a SamplesError if the samples do
    not suffice.
    """
    check_vm_counts([max_vms])
    if len(samples.vms) < 2:
        raise SamplesError(
            f"App '{samples.app}' was measured on {list(samples.vms)} VMs only. A curve needs two or more VM counts."
        )
    selection = select_curve(samples, validation=validation, steps=steps, families=families, choose=choose)
    grid = np.arange(1.0, max(max_vms, *samples.vms) + 1)
    curve = selection.predict(grid)
    scatter = _scatter(samples, curve, selection.chosen.family.parameters, _held_out_error(samples, selection))

    rng = np.random.default_rng(seed)
    within, between = _drawn_deviations(scatter, resamples, rng)
    redrawn = _redrawn_samples(samples, curve, within, between, rng)
    refitted = _reselect(redrawn, samples.vms, selection, grid, rng)

    offset, unexplained = _near_measured(samples, curve, grid, scatter)
    corrected = curve * np.exp(offset)  # without a second running maximum, which would keep every lucky measurement
    mean_samples = np.mean([len(values) for values in samples.throughput])
    deviation = np.sqrt(unexplained * between[:, None] ** 2 + (1.0 - unexplained) * within[:, None] ** 2 / mean_samples)
    # Drawn per VM count, so that the prediction for one count does not depend on `max_vms`.
    mean_noise, sample_noise = (child.standard_normal(refitted.shape[::-1]).T for child in rng.spawn(2))
    mean_draws = corrected * (refitted / curve) ** unexplained * np.exp(deviation * mean_noise)
    sample_draws = mean_draws * np.exp(within[:, None] * sample_noise)
    return MstModel(
        app=samples.app,
        selection=selection,
        scatter=scatter,
        curve=corrected[:max_vms],
        mean_draws=mean_draws[:, :max_vms],
        sample_draws=sample_draws[:, :max_vms],
    )


def _drawn_deviations(scatter: Scatter, resamples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return draws of the standard deviations (within, between), of shape (resamples,)."""
    within, between = (scatter.within, scatter.within_freedom), (scatter.between, scatter.between_freedom)
    if scatter.separated:
        between = _with_expectation(*between)
    else:
        within = _with_expectation(*within)
    within_draws, between_draws = (
        deviation * np.sqrt(freedom / rng.chisquare(freedom, resamples)) for deviation, freedom in (within, between)
    )
    return within_draws, between_draws


def _with_expectation(deviation: float, freedom: int) -> tuple[float, int]:
    square = (freedom * deviation**2 + _EXPECTED_DEVIATION**2) / (freedom + 1)
    return float(np.sqrt(square)), freedom + 1


def _redrawn_samples(
    samples: ThroughputSamples, curve: Floats, within: Floats, between: Floats, rng: np.random.Generator
) -> Floats:
    """Return sets of samples drawn around the curve, of shape (resamples, counts, samples)."""
    measured = samples.padded()
    centre = curve[np.array(samples.vms) - 1]
    u = between[:, None] * rng.standard_normal((len(between), len(samples.vms)))
    e = within[:, None, None] * rng.standard_normal((len(within), *measured.shape))
    return np.where(np.isnan(measured), np.nan, centre[:, None] * np.exp(u[..., None] + e))


def _near_measured(samples: ThroughputSamples, curve: Floats, grid: Floats, scatter: Scatter) -> tuple[Floats, Floats]:
    """Return the log correction of the curve at each VM count, and the share of its error variance that remains.

    The errors of the curve at similar VM counts are correlated by exp(-distance / `_CORRELATION_DOUBLINGS`), where the
    distance is to the nearest measured count. The correction is log(measured / curve), shrunk by its share of noise,
    interpolated between measured counts and multiplied by the correlation. The remaining share is 1 - correlation^2,
    which is 0 at a measured count.
    """
    measured, counts = np.log2(np.array(samples.vms, dtype=float)), np.log2(grid)
    square = scatter.between**2
    corrections = [
        float(np.mean(np.log(np.array(y) / curve[m - 1]))) * square / max(square + scatter.within**2 / len(y), 1e-300)
        for m, y in zip(samples.vms, samples.throughput, strict=True)
    ]
    correlation = np.exp(-np.abs(counts[:, None] - measured).min(-1) / _CORRELATION_DOUBLINGS)
    return np.interp(counts, measured, corrections) * correlation, 1.0 - correlation**2


def _held_out_error(samples: ThroughputSamples, selection: CurveSelection) -> float:
    """Return the relative error of the selected family at measured counts that were not used for fitting.

    With four or more counts, each count between two others is predicted from all others. The error of the selection is
    that of a prediction far beyond the fitted counts, which says little about the samples.
    """
    inner = range(1, len(samples.vms) - 1)
    if selection.validated or len(samples.vms) < 4:
        return selection.errors[selection.chosen.name]
    folds = [(tuple(other for other in range(len(samples.vms)) if other != left), (left,)) for left in inner]
    chosen = selection.chosen
    return fold_error(chosen.family, samples, folds, step=chosen.step, weighting=Weighting.RELATIVE)


def _scatter(samples: ThroughputSamples, curve: Floats, parameters: int, held_out: float) -> Scatter:
    """One-way analysis of variance of log(sample / curve) by VM count; the curve takes `parameters` degrees of freedom.

    A curve with as many parameters as VM counts passes through all means and shows no error. For single samples, the
    selected curve is one that happens to be close to them. In both cases `held_out`, the relative error at counts not
    used for fitting, is a lower bound of the error.
    """
    logs = [np.log(np.array(y) / curve[m - 1]) for m, y in zip(samples.vms, samples.throughput, strict=True)]
    sizes = np.array([len(part) for part in logs])
    between_freedom = max(len(logs) - parameters, 2)  # a standard deviation needs at least 2
    mean_square = sum(len(part) * float(part.mean()) ** 2 for part in logs) / between_freedom
    within_freedom = int(sizes.sum()) - len(logs)
    if len(logs) <= parameters or within_freedom == 0:
        mean_square = max(mean_square, float(sizes.mean()) * float(np.log1p(held_out)) ** 2)
    if within_freedom == 0:  # one sample per count: the two deviations cannot be separated
        return Scatter(
            within=float(np.sqrt(mean_square)),
            within_freedom=between_freedom,
            between=0.0,
            between_freedom=1,
            separated=False,
        )
    within_square = sum(float(((part - part.mean()) ** 2).sum()) for part in logs) / within_freedom
    between_square = max(0.0, (mean_square - within_square) / float(sizes.mean()))
    return Scatter(
        within=float(np.sqrt(within_square)),
        within_freedom=within_freedom,
        between=float(np.sqrt(between_square)),
        between_freedom=between_freedom,
    )


def _reselect(
    throughput: Floats,
    vms: tuple[int, ...],
    selection: CurveSelection,
    grid: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Return one curve for each redrawn set, of shape (resamples, grid).

    With validation counts, it is the curve with the smallest error at them. Otherwise its family is drawn by the shares
    of the families, so that the draws show how much the families disagree.
    """
    x = np.array(vms, dtype=float)
    index = np.array(vms) - 1
    step = selection.chosen.step
    families = [curve.family for curve in selection.curves]
    held = np.isin(vms, selection.validated)
    if held.any():
        folds = [(tuple(np.flatnonzero(~held).tolist()), tuple(np.flatnonzero(held).tolist()))]
    else:
        folds = folds_without_validation(len(vms), selection.choose)
    errors = []
    for family in families:
        sums = fit_sums(throughput, family.link, Weighting.RELATIVE)
        fold_errors = np.zeros(len(throughput))
        for fit_to, predicted in folds:
            fitted, judged = (np.isin(np.arange(len(vms)), part).astype(float) for part in (fit_to, predicted))
            p = running_maximum(fit_and_predict(family, x, sums.restricted_to(fitted), step, grid[: max(vms)]))[
                :, index
            ]
            relative_error = p[..., None] / throughput - 1
            with np.errstate(over="ignore", invalid="ignore"):  # in draws with extreme values, which are not selected
                fold_errors += (np.nanmean(relative_error**2, axis=-1) * judged).sum(-1)
        errors.append(np.sqrt(fold_errors / sum(len(predicted) for _, predicted in folds)))
    if held.any() or selection.choose != "mean":
        winner = np.argmin(errors, axis=0)
    else:
        limits = np.cumsum(family_shares(np.array(errors)), axis=0)
        winner = (rng.random(len(throughput)) > limits).sum(0).clip(max=len(families) - 1)
    chosen = np.empty((len(throughput), len(grid)))
    for number, family in enumerate(families):
        rows = winner == number
        if rows.any():
            sums = fit_sums(throughput[rows], family.link, Weighting.RELATIVE)
            chosen[rows] = running_maximum(fit_and_predict(family, x, sums, step, grid))
    return chosen
