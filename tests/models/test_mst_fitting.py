"""Curve families, non-negative least squares, and the subset search."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls as scipy_nnls

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.curve_families import (
    AMDAHL,
    CURVE_FAMILIES,
    MODEL1,
    MODEL2,
    PAPER_FAMILIES,
    POWER,
    ROOFLINE,
    USL,
    CurveFamily,
)
from penstock.models.mst.fitted_curve import fit_curve, running_maximum
from penstock.models.mst.least_squares import Link, Weighting
from penstock.models.mst.nnls import nnls
from penstock.models.mst.samples import SamplesError, ThroughputSamples, parse_samples
from penstock.models.mst.training_subset import best_training_subset

throughputs = st.lists(st.floats(0.1, 1000), min_size=5, max_size=5)
COUNTS = (1, 2, 4, 9, 30)


def noisy(app: str, curve, seed: int, counts=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32)) -> ThroughputSamples:
    rng = np.random.default_rng(seed)
    return ThroughputSamples.of(app, {m: curve(m) * rng.lognormal(0, 0.05, size=3) for m in counts})


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_nnls_is_lawson_and_hansons(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    x, target = rng.normal(size=(8, width)), rng.normal(size=8)
    _, residual = scipy_nnls(x, target)
    w = nnls(x.T @ x, x.T @ target)
    assert (w >= 0).all()
    assert np.linalg.norm(x @ w - target) == pytest.approx(residual, abs=1e-9)


@pytest.mark.parametrize("candidate", PAPER_FAMILIES)
@pytest.mark.parametrize("weighting", list(Weighting))
def test_weights_are_those_of_scipy_on_single_samples(candidate: CurveFamily, weighting: Weighting) -> None:
    samples = noisy("a", lambda m: 3 * m / (1 + 0.03 * m), seed=4)
    m = np.repeat(np.array(samples.vms, dtype=float), 3)
    y = np.concatenate([np.array(values) for values in samples.throughput])
    x = np.stack([m**0, 1 / m, m, m**2], 1) if candidate is MODEL1 else np.stack([m**0, m, -(m**2)], 1)
    target = 1 / y if candidate is MODEL1 else y
    if weighting is Weighting.RELATIVE:
        scale = y if candidate is MODEL1 else 1 / y
        x, target = x * scale[:, None], target * scale
    expected, _ = scipy_nnls(x, target)
    assert fit_curve(candidate, samples, weighting=weighting).weights == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("candidate", CURVE_FAMILIES, ids=lambda c: c.name)
@given(values=throughputs)
@settings(max_examples=60, deadline=None)
def test_every_candidate_keeps_the_contract(candidate: CurveFamily, values: list[float]) -> None:
    fitted = fit_curve(candidate, ThroughputSamples.of("a", {m: [y] for m, y in zip(COUNTS, values, strict=True)}))
    predicted = fitted.predict(range(1, 65))
    assert all(weight >= 0 for weight in fitted.weights)
    assert (np.diff(predicted) >= 0).all()  # the peak effect
    assert np.isfinite(predicted).all() and (predicted > 0).all()


@pytest.mark.parametrize("candidate", CURVE_FAMILIES, ids=lambda c: c.name)
def test_perfect_linear_scaling_is_found_exactly(candidate: CurveFamily) -> None:
    fitted = fit_curve(candidate, ThroughputSamples.of("a", {m: [2.5 * m, 2.5 * m] for m in (1, 2, 4, 8)}))
    assert fitted.predict([3, 100]) == pytest.approx([7.5, 250.0], rel=1e-5)


def test_usl_finds_its_known_peak() -> None:
    # r = 10, s = 0.02, k = 0.0005: the peak is at sqrt((1 - s) / k) = 44.27 VMs
    def usl(m: float) -> float:
        return 10 * m / (1 + 0.02 * (m - 1) + 0.0005 * m * (m - 1))

    fitted = fit_curve(USL, ThroughputSamples.of("a", {m: [usl(m)] for m in (1, 2, 5, 10, 30, 60)}))
    curve = fitted.raw(np.arange(1.0, 129))
    assert int(np.argmax(curve)) + 1 == 44
    assert fitted.predict([44, 128]) == pytest.approx([usl(44), usl(44)], rel=1e-6)
    w0, _, w2 = fitted.weights
    assert np.sqrt(w0 / w2) == pytest.approx(np.sqrt(0.98 / 0.0005), rel=1e-4)


def test_the_others_find_their_own_curves() -> None:
    own = {
        AMDAHL.name: lambda m: 4 * m / (1 + 0.1 * (m - 1)),
        POWER.name: lambda m: 3 * m**0.7,
        ROOFLINE.name: lambda m: min(1 + 2 * m, 20.0),
        MODEL1.name: lambda m: 1 / (0.01 + 0.4 / m + 0.001 * m + 1e-5 * m**2),
        MODEL2.name: lambda m: 2 + 3 * m - 0.01 * m**2,
    }
    for candidate in (AMDAHL, POWER, ROOFLINE, MODEL1, MODEL2):
        curve = own[candidate.name]
        samples = ThroughputSamples.of("a", {m: [curve(m)] for m in (1, 2, 4, 7, 12, 20, 40)})
        fitted = fit_curve(candidate, samples)
        at = (3, 9, 30)
        assert fitted.raw(np.array(at, dtype=float)) == pytest.approx([curve(m) for m in at], rel=1e-4), candidate.name


def test_a_step_makes_two_vm_counts_one() -> None:
    samples = ThroughputSamples.of("a", {m: [2.0 * 1.5 * max(1, int(m / 1.5))] for m in (1, 2, 3, 4, 5, 6, 7, 8)})
    fitted = fit_curve(AMDAHL, samples, step=1.5)
    assert fitted.train_rmse < 1e-6
    assert fitted.predict([6, 7, 16]) == pytest.approx([12.0, 12.0, 30.0], rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_running_maximum(values: list[float]) -> None:
    assert running_maximum(np.array(values)).tolist() == [max(values[: i + 1]) for i in range(len(values))]


def brute_force(apps: list[ThroughputSamples], max_vms: int, sizes: list[int]) -> tuple[tuple[int, ...], float]:
    """Phase 1 of the paper with loops and scipy."""
    vms = np.array(apps[0].vms, dtype=float)
    best, best_rmse = (), np.inf
    for size in sizes:
        for subset in combinations([m for m in apps[0].vms if m <= max_vms], size):
            rmses = []
            for app in apps:
                y = np.array(app.throughput)
                y = y / y.max()
                inside = np.isin(vms, subset)
                for candidate in PAPER_FAMILIES:
                    reciprocal = candidate.link is Link.RECIPROCAL
                    x = candidate.features(vms)
                    rows = np.repeat(x[inside], y.shape[1], axis=0)
                    target = y[inside].ravel()
                    w, _ = scipy_nnls(rows, 1 / target if reciprocal else target)
                    p = 1 / (x @ w) if reciprocal else x @ w
                    p = np.maximum.accumulate(p)
                    rmses.append(np.sqrt(np.mean((p[~inside, None] - y[~inside]) ** 2)))
            if np.mean(rmses) < best_rmse:
                best, best_rmse = subset, float(np.mean(rmses))
    return best, best_rmse


def test_subset_search_is_brute_force() -> None:
    apps = [noisy("a", lambda m: 5 * m / (1 + 0.05 * m), 1), noisy("b", lambda m: 2 * m**0.8, 2)]
    best = best_training_subset(apps, max_vms=12, sizes=(3, 4))
    vms, rmse = brute_force(apps, 12, [3, 4])
    assert best.vms == vms
    assert best.rmse == pytest.approx(rmse, rel=1e-7)
    assert best.tried == best.subsets == 35 + 35


def test_subset_search_samples_beyond_its_limit_and_repeats_with_its_seed() -> None:
    apps = [noisy("a", lambda m: 5 * m / (1 + 0.05 * m), 1)]
    exhaustive = best_training_subset(apps, max_vms=32, sizes=(3, 4))
    first, again, other = (best_training_subset(apps, max_vms=32, sizes=(3, 4), limit=60, seed=s) for s in (7, 7, 8))
    assert first == again
    assert not first.exhaustive and first.tried == 60 and first.subsets == 330
    assert min(first.rmse, other.rmse) >= exhaustive.rmse
    assert len(first.vms) in (3, 4) and max(first.vms) <= 32


def test_a_larger_budget_is_never_worse() -> None:
    apps = [noisy("a", lambda m: 5 * m / (1 + 0.05 * m), 5)]
    rmses = [best_training_subset(apps, max_vms=m, sizes=(3,)).rmse for m in (4, 8, 16, 32)]
    assert rmses == sorted(rmses, reverse=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns"),
        ("app,vms,throughput\n", "no samples"),
        ("app,count,throughput\na,1,2\n", "columns"),
        ("app,vms,throughput\na,one,2\n", "line 2"),
        ("app,vms,throughput\na,1\n", "line 2"),
        ("app,vms,throughput\na,1,2,3\n", "line 2"),
        ('app,vms,throughput\na,1,"2\n', "line 2: this is not valid CSV"),
        ("app,vms,throughput\na,1," + "9" * 200_000, "line 2: this is not valid CSV"),
        ("app,vms,throughput\n\na,x,2\n", "line 3: 'a,x,2'"),
        ("app,vms,throughput\na,1,-2\n", "above 0"),
        ("app,vms,throughput\na,1,nan\n", "above 0"),
        ("app,vms,throughput\na,1,1e308\n", r"throughput 1e\+308 on 1 VMs. .* another unit"),
        ("app,vms,throughput\na,1,1e-300\n", "throughput 1e-300 on 1 VMs. .* another unit"),
        ("app,vms,throughput\na,0,2\n", "at least 1"),
        ("app,vms,throughput\na,1000000000,2\n", "at most 10000"),
        ("app,vms,throughput\n,1,2\n", "no name"),
    ],
)
def test_bad_samples_get_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        parse_samples(text)


def test_an_impossible_subset_is_refused() -> None:
    with pytest.raises(SamplesError, match="VM counts up to 2"):
        best_training_subset([noisy("a", lambda m: m, 0)], max_vms=2, sizes=(3,))
