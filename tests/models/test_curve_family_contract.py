"""The contract of MST curve families: every family passes the same tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.mst.curve_families import CURVE_FAMILIES, CurveFamily
from penstock.models.mst.fitted_curve import fit_curve
from penstock.models.mst.least_squares import Weighting, fit_sums
from penstock.models.mst.samples import ThroughputSamples

VMS = (1, 2, 3, 4, 6, 8, 12, 16)
WEIGHTS = {  # one member of each family
    "model1": [0.02, 0.3, 0.001, 0.0001],
    "model2": [1.0, 3.0, 0.05],
    "amdahl": [0.02, 0.3],
    "usl": [0.3, 0.02, 0.001],
    "power": [1.0, 0.0, 0.8],
    "roofline": [0.5, 3.0, 20.0],
}
each_family = pytest.mark.parametrize("family", CURVE_FAMILIES, ids=lambda family: family.name)


def member(family: CurveFamily) -> np.ndarray:
    return family.predict(np.array(WEIGHTS[family.name]), np.array(VMS, dtype=float))


@each_family
@pytest.mark.parametrize("weighting", Weighting)
def test_a_member_of_the_family_is_recovered_from_exact_samples(family: CurveFamily, weighting: Weighting) -> None:
    samples = ThroughputSamples.of("app", {m: [float(y)] for m, y in zip(VMS, member(family), strict=True)})
    fitted = fit_curve(family, samples, weighting=weighting)
    assert fitted.raw(np.array(VMS, dtype=float)) == pytest.approx(member(family), rel=1e-4)
    assert fitted.train_rmse < 1e-4


@each_family
def test_a_batch_gives_the_same_weights_as_single_fits(family: CurveFamily) -> None:
    rng = np.random.default_rng(1)
    throughput = member(family)[:, None] * np.exp(0.05 * rng.standard_normal((5, len(VMS), 3)))
    vms = np.array(VMS, dtype=float)
    together = family.fit(vms, fit_sums(throughput, family.link, Weighting.RELATIVE))
    alone = [family.fit(vms, fit_sums(sample, family.link, Weighting.RELATIVE)) for sample in throughput]
    assert together == pytest.approx(np.stack(alone), rel=1e-6, abs=1e-9)


@each_family
def test_the_unit_of_throughput_does_not_matter(family: CurveFamily) -> None:
    rng = np.random.default_rng(2)
    by_vms = {m: list(y * np.exp(0.05 * rng.standard_normal(3))) for m, y in zip(VMS, member(family), strict=True)}
    scaled = {m: [1000.0 * y for y in values] for m, values in by_vms.items()}
    curve, scaled_curve = (fit_curve(family, ThroughputSamples.of("app", s)).predict(VMS) for s in (by_vms, scaled))
    assert scaled_curve == pytest.approx(1000.0 * curve, rel=1e-6)


@each_family
@given(st.lists(st.floats(0.5, 50.0), min_size=len(VMS), max_size=len(VMS)))
@settings(max_examples=20, deadline=None)
def test_predictions_are_finite_and_do_not_decrease(family: CurveFamily, rates: list[float]) -> None:
    samples = ThroughputSamples.of("app", {m: [rate] for m, rate in zip(VMS, rates, strict=True)})
    predicted = fit_curve(family, samples).predict(range(1, 65))
    assert np.isfinite(predicted).all()
    assert (np.diff(predicted) >= 0).all()
