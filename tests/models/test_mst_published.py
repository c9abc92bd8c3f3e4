"""Published numbers of the MST paper from the measurements of its authors, and the same tests on generated ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import nnls

from penstock.models.mst.curve_families import PAPER_FAMILIES
from penstock.models.mst.fitted_curve import fit_curve
from penstock.models.mst.least_squares import Weighting, mape
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.models.mst.training_subset import best_training_subset
from tests.support.mst_measurements import GENERATED, PUBLISHED, both, measurements

PHASE_1 = ("wc", "sol", "rsort")
# Table 1: the largest VM count allowed, the best subset, its RMSE
TABLE_1 = [
    (5, (2, 4, 5), 0.2864),
    (6, (2, 4, 5), 0.2864),
    (7, (2, 4, 5, 7), 0.1394),
    (8, (2, 4, 5, 7), 0.1394),
    (12, (2, 4, 5, 7), 0.1394),
    (16, (6, 8, 16), 0.1263),
    (24, (3, 4, 6, 8, 24), 0.0813),
    (32, (3, 4, 6, 8, 24), 0.0813),
]


def brute_force(apps: list[ThroughputSamples], max_vms: int) -> tuple[tuple[int, ...], float]:
    """Phase 1 of the paper with loops and scipy, for subsets of four: from fewer counts, model 1 has several best fits."""
    vms = np.array(apps[0].vms, dtype=float)
    terms = {1: np.stack([vms**0, 1 / vms, vms, vms**2], 1), 2: np.stack([vms**0, vms, -(vms**2)], 1)}
    best: tuple[tuple[int, ...], float] = ((), np.inf)
    for subset in combinations([count for count in apps[0].vms if count <= max_vms], 4):
        inside = np.isin(vms, subset)
        rmses = []
        for app in apps:
            y = np.array(app.throughput) / np.max(app.throughput)
            for model, x in terms.items():
                rows, target = np.repeat(x[inside], y.shape[1], axis=0), y[inside].ravel()
                w, _ = nnls(rows, 1 / target if model == 1 else target)
                predicted = np.maximum.accumulate(1 / (x @ w) if model == 1 else x @ w)
                rmses.append(np.sqrt(np.mean((predicted[~inside, None] - y[~inside]) ** 2)))
        if np.mean(rmses) < best[1]:
            best = subset, float(np.mean(rmses))
    return best


@pytest.mark.parametrize(("max_vms", "vms", "rmse"), TABLE_1)
def test_table_1(max_vms: int, vms: tuple[int, ...], rmse: float) -> None:
    measured = measurements(PUBLISHED)
    best = best_training_subset([measured[app] for app in PHASE_1], max_vms=max_vms)
    assert best.vms == vms
    assert round(best.rmse, 4) == rmse
    assert best.exhaustive


@pytest.mark.parametrize("max_vms", [max_vms for max_vms, _, _ in TABLE_1])
def test_table_1_on_generated_samples(max_vms: int) -> None:
    apps = [measurements(GENERATED)[app] for app in PHASE_1]
    best = best_training_subset(apps, max_vms=max_vms, sizes=[4])
    vms, rmse = brute_force(apps, max_vms)
    assert best.vms == vms
    assert best.rmse == pytest.approx(rmse, rel=1e-6)


@both
def test_a_larger_budget_never_gives_a_larger_error(origin: str) -> None:
    measured = measurements(origin)
    errors = [best_training_subset([measured[app] for app in PHASE_1], max_vms=row[0]).rmse for row in TABLE_1]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]


@both
@pytest.mark.parametrize("trained", [(3, 4, 6, 8, 24), (2, 4, 8, 24), (1, 2, 4, 8)])
def test_larger_counts_are_predicted_better_than_by_the_models_of_the_paper(
    origin: str, trained: tuple[int, ...]
) -> None:
    """Without a validation count, each application is predicted at all counts above the largest one that was used."""
    measured = measurements(origin)
    errors: dict[str, list[float]] = {"mean of the families": [], **{family.name: [] for family in PAPER_FAMILIES}}
    inside: list[bool] = []
    for samples in measured.values():
        train, larger = samples.only(trained), samples.only(count for count in samples.vms if count > max(trained))
        model = fit_mst(train, max_vms=128, resamples=200)
        errors["mean of the families"].append(mape(model.curve[np.array(larger.vms) - 1], larger))
        for family in PAPER_FAMILIES:
            fitted = fit_curve(family, train, weighting=Weighting.ABSOLUTE)
            errors[family.name].append(mape(fitted.predict(larger.vms), larger))
        predictions = model.predict(larger.vms, level=0.9)
        inside += [p.low <= y <= p.high for p, ys in zip(predictions, larger.throughput, strict=True) for y in ys]
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    assert min(means, key=lambda name: means[name]) == "mean of the families", means
    assert np.mean(inside) >= 0.8
