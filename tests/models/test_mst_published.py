"""Published numbers of the MST paper, from measurements of its authors that are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from penstock.models.mst.curve_families import PAPER_FAMILIES
from penstock.models.mst.fitted_curve import fit_curve
from penstock.models.mst.least_squares import Weighting, mape
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.models.mst.training_subset import best_training_subset

SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "mst" / "samples.tsv"

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


@pytest.fixture(scope="module")
def measured() -> dict[str, ThroughputSamples]:
    if not SHARED.exists():
        pytest.skip(f"the authors' measurements are not at {SHARED}")
    measured: dict[str, dict[int, list[float]]] = {}
    for line in SHARED.read_text().splitlines()[1:]:
        _, app, vms, *values = line.split("\t")
        measured.setdefault(app, {})[int(vms)] = [float(value) for value in values]
    return {app: ThroughputSamples.of(app, by_vms) for app, by_vms in measured.items()}


@pytest.mark.parametrize(("max_vms", "vms", "rmse"), TABLE_1)
def test_table_1(measured: dict[str, ThroughputSamples], max_vms: int, vms: tuple[int, ...], rmse: float) -> None:
    best = best_training_subset([measured[app] for app in ("wc", "sol", "rsort")], max_vms=max_vms)
    assert best.vms == vms
    assert round(best.rmse, 4) == rmse
    assert best.exhaustive


@pytest.mark.parametrize("trained", [(3, 4, 6, 8, 24), (2, 4, 8, 24), (1, 2, 4, 8)])
def test_larger_counts_are_predicted_better_than_by_the_models_of_the_paper(
    measured: dict[str, ThroughputSamples], trained: tuple[int, ...]
) -> None:
    """Without a validation count, each application is predicted at all counts above the largest one that was used."""
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
