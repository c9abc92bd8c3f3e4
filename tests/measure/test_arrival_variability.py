"""The variability of arrivals from grouped append times, and the standard deviation of latencies."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.measure.estimators import grouped_scv, latency
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Window

ROWS = 40_000


def arrivals(scv: float, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    gaps = np.full(ROWS, 0.01) if scv == 0 else rng.gamma(1 / scv, 0.01 * scv, ROWS)
    return np.cumsum(gaps)


def groups_of(times: np.ndarray, size: int) -> list[tuple[float, float]]:
    """Merge neighbours, as sources and the lineage of a batch do."""
    return [(float(part.mean()), float(len(part))) for part in np.split(times, range(size, len(times), size))]


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("scv", [0.25, 1.0, 4.0])
def test_groups_have_the_variability_of_their_rows(scv: float, size: int) -> None:
    assert grouped_scv(groups_of(arrivals(scv), size)) == pytest.approx(scv, rel=0.15)


@pytest.mark.parametrize("size", [1, 7])
def test_regular_rows_have_none(size: int) -> None:
    assert grouped_scv(groups_of(arrivals(0.0), size)) == pytest.approx(0.0, abs=1e-6)


def test_few_or_simultaneous_groups_are_unknown() -> None:
    assert grouped_scv([(float(n), 1.0) for n in range(9)]) is None
    assert grouped_scv([(5.0, 1.0)] * 30) is None


def window_of(times: list[tuple[float, float]]) -> Window:
    return Window(
        start_s=0.0,
        end_s=1.0,
        generation=1,
        external_rows_per_s=1.0,
        latency=latency(times),
        pipelines=(),
        operators=(),
    )


def test_the_deviation_of_two_windows_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.exponential(1.0, 500), 5.0 + rng.exponential(2.0, 500)
    smoothed = MovingAverage(2).smoothed([window_of([(t, 1.0) for t in part]) for part in (first, second)])
    assert smoothed is not None and smoothed.latency is not None
    assert smoothed.latency.sd_s == pytest.approx(np.concatenate([first, second]).std(), rel=1e-9)


def test_an_exponential_latency_deviates_by_its_mean() -> None:
    drawn = np.random.default_rng(2).exponential(3.0, 200_000)
    measured = latency([(float(value), 1.0) for value in drawn])
    assert measured is not None and measured.sd_s == pytest.approx(3.0, rel=0.02)
