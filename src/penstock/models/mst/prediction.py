"""The model of one application: the chosen curve, what was measured near by, and how far off both may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.curve_selection import CurveSelection, select_curve
from penstock.models.mst.fitted_curve import check_vm_counts, fit_and_predict, running_maximum
from penstock.models.mst.least_squares import Weighting, fit_sums
from penstock.models.mst.samples import Floats, SamplesError, ThroughputSamples

# Doublings of the VM count over which what a curve misses falls to 1/e: 64 says something of 80, little of 128.
# Decided on the applications of phase 1: counts left out in turn are 13% off on average, by the curve alone 17%.
_ALIKE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MstPrediction:
    """`low` to `high` holds a new sample on `vms` VMs with probability `level`."""

    vms: int
    throughput: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Relative standard deviations: of samples around their count's mean, and of these means around the curve."""

    within: float
    within_freedom: int
    between: float
    between_freedom: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MstModel:
    """Column m - 1 of `curve`, `mean_draws` and `sample_draws` is for m VMs; a row of draws is one possible world.

    `curve` is the selected candidate's, drawn towards the measurements at and near the VM counts that have some."""

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
        """A new sample's throughput, with its interval."""
        counts = check_vm_counts(vms)
        if max(counts) > self.max_vms:
            raise SamplesError(f"asked for {max(counts)} VMs of a model made for up to {self.max_vms}; fit it for more")
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
        """The mean MST on 1, 2, ... VMs that is exceeded with probability `confidence`: what a careful planner uses.

        Not monotonic by itself where the draws are few, so the running maximum is taken, as for every curve here.
        """
        if not 0 < confidence < 1:
            raise SamplesError(f"confidence is {confidence}; it must be above 0 and below 1")
        return running_maximum(np.quantile(self.mean_draws, 1 - confidence, axis=0))


def _interval(draws: Floats, curve: Floats, level: float) -> tuple[Floats, Floats]:
    if not 0 < level < 1:
        raise SamplesError(f"the level of the interval is {level}; it must be above 0 and below 1")
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.minimum(low, curve), np.maximum(high, curve)


def fit_mst(
    samples: ThroughputSamples,
    *,
    max_vms: int,
    validation: Sequence[int] = (),
    candidates: Sequence[CurveFamily] = CURVE_FAMILIES,
    steps: Sequence[float] = (0.0,),
    weighting: Weighting = Weighting.RELATIVE,
    resamples: int = 1000,
    seed: int = 0,
) -> MstModel:
    """Select a candidate, then redo everything, selection included, on `resamples` redrawn sets of samples.

    A set is redrawn from the chosen curve: y = MST(m) exp(u_m + e), with u_m ~ N(0, between^2) for what the curve
    misses at a VM count and e ~ N(0, within^2) for each sample; both variances are themselves drawn, from the scaled
    inverse chi-square that their estimates imply (so that few samples give wide intervals, as with Student's t). A
    prediction for m VMs is one such world's curve at m, with a u_m and, for a single sample, an e of its own; near a
    measured count u_m is partly known (`_near_measured`), so that the prediction leans on what was measured there.
    """
    check_vm_counts([max_vms])
    if len(samples.vms) < 2:
        raise SamplesError(
            f"app '{samples.app}' was measured on {list(samples.vms)} VMs only; a curve needs two VM counts or more"
        )
    selection = select_curve(samples, validation=validation, candidates=candidates, steps=steps, weighting=weighting)
    grid = np.arange(1.0, max(max_vms, *samples.vms) + 1)
    curve = running_maximum(selection.chosen.raw(grid))
    scatter = _scatter(samples, curve, selection.chosen.candidate.parameters, selection.errors[selection.chosen.name])

    rng = np.random.default_rng(seed)
    within = scatter.within * np.sqrt(scatter.within_freedom / rng.chisquare(scatter.within_freedom, resamples))
    between = scatter.between * np.sqrt(scatter.between_freedom / rng.chisquare(scatter.between_freedom, resamples))
    measured = samples.padded()
    centre = curve[np.array(samples.vms) - 1]
    u = between[:, None] * rng.standard_normal((resamples, len(samples.vms)))
    e = within[:, None, None] * rng.standard_normal((resamples, *measured.shape))
    redrawn = np.where(np.isnan(measured), np.nan, centre[:, None] * np.exp(u[..., None] + e))

    refitted = _reselect(redrawn, samples.vms, selection, candidates, weighting, grid)
    offset, left = _near_measured(samples, curve, grid, scatter)
    corrected = curve * np.exp(offset)  # no running maximum again: it would keep every lucky measurement
    each = np.mean([len(values) for values in samples.throughput])
    spread = np.sqrt(left * between[:, None] ** 2 + (1.0 - left) * within[:, None] ** 2 / each)
    # Count by count, so that what is said of one does not depend on how many others are asked for.
    of_means, of_singles = (one.standard_normal(refitted.shape[::-1]).T for one in rng.spawn(2))
    means = corrected * (refitted / curve) ** left * np.exp(spread * of_means)
    singles = means * np.exp(within[:, None] * of_singles)
    return MstModel(
        app=samples.app,
        selection=selection,
        scatter=scatter,
        curve=corrected[:max_vms],
        mean_draws=means[:, :max_vms],
        sample_draws=singles[:, :max_vms],
    )


def _near_measured(samples: ThroughputSamples, curve: Floats, grid: Floats, scatter: Scatter) -> tuple[Floats, Floats]:
    """What the measurements themselves say of each VM count, and how much of the curve's error they leave open.

    What the curve misses is alike at VM counts that are alike: its correlation falls as exp(-distance / `_ALIKE`), with
    the distance to the nearest measured count. offset: the log of measured over curve, shrunk by its share that is
    noise, on the line between measured counts, times that correlation. left: 1 - correlation^2, 0 at a measured count.
    """
    at, counts = np.log2(np.array(samples.vms, dtype=float)), np.log2(grid)
    square = scatter.between**2
    off = [
        float(np.mean(np.log(np.array(y) / curve[m - 1]))) * square / max(square + scatter.within**2 / len(y), 1e-300)
        for m, y in zip(samples.vms, samples.throughput, strict=True)
    ]
    alike = np.exp(-np.abs(counts[:, None] - at).min(-1) / _ALIKE)
    return np.interp(counts, at, off) * alike, 1.0 - alike**2


def _scatter(samples: ThroughputSamples, curve: Floats, parameters: int, held_out: float) -> Scatter:
    """One-way analysis of variance of log(sample / curve) by VM count; the curve takes `parameters` freedoms.

    A curve with as many parameters as there are counts runs through all of them and shows no error of its own, and of
    many curves that of single samples was chosen for running close to just these: in both cases `held_out`, the
    relative error at counts that it was not fitted to, says how far off it may be.
    """
    logs = [np.log(np.array(y) / curve[m - 1]) for m, y in zip(samples.vms, samples.throughput, strict=True)]
    sizes = np.array([len(part) for part in logs])
    between_freedom = max(len(logs) - parameters, 2)  # 2: the fewest with which a spread is still worth a number
    mean_square = sum(len(part) * float(part.mean()) ** 2 for part in logs) / between_freedom
    within_freedom = int(sizes.sum()) - len(logs)
    if len(logs) <= parameters or within_freedom == 0:
        mean_square = max(mean_square, float(sizes.mean()) * float(np.log1p(held_out)) ** 2)
    if within_freedom == 0:  # one sample a count: what is between cannot be told from what is within
        return Scatter(
            within=float(np.sqrt(mean_square)), within_freedom=between_freedom, between=0.0, between_freedom=1
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
    candidates: Sequence[CurveFamily],
    weighting: Weighting,
    grid: Floats,
) -> Floats:
    """(resamples, grid): the curve that each redrawn set would have led to, by the same choice among candidates."""
    x = np.array(vms, dtype=float)
    index = np.array(vms) - 1
    step = selection.chosen.step
    held = np.isin(vms, selection.validated).astype(float)
    # Each fold fits on what it keeps and is judged on what it holds out.
    folds = [held] if held.any() else [np.eye(len(vms))[i] for i in range(len(vms))]
    errors = []
    for candidate in candidates:
        sums = fit_sums(throughput, candidate.link, weighting)
        judged = np.zeros(len(throughput))
        for fold in folds:
            p = running_maximum(fit_and_predict(candidate, x, sums.restricted_to(1.0 - fold), step, grid[: max(vms)]))[
                :, index
            ]
            off = p[..., None] / throughput - 1 if weighting is Weighting.RELATIVE else p[..., None] - throughput
            with np.errstate(over="ignore", invalid="ignore"):  # of worlds that are far off, and not chosen
                judged += np.nansum(off**2 * fold[:, None], axis=(-2, -1))
        errors.append(judged)
    winner = np.argmin(errors, axis=0)
    chosen = np.empty((len(throughput), len(grid)))
    for number, candidate in enumerate(candidates):
        rows = winner == number
        if rows.any():
            sums = fit_sums(throughput[rows], candidate.link, weighting)
            chosen[rows] = running_maximum(fit_and_predict(candidate, x, sums, step, grid))
    return chosen
