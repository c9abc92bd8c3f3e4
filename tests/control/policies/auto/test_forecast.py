"""Forecasts of generated loads whose next rates are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.control.forecast import Forecast, forecast
from penstock.control.recorded_load import RecordedRate

QUIET = [100.0, 102.0, 98.0, 101.0, 99.0] * 24


def record(rates: list[float]) -> list[RecordedRate]:
    return [RecordedRate(10.0 * at, 10.0 * at + 10.0, rate) for at, rate in enumerate(rates)]


def poisson(rates: list[float], seed: int) -> list[RecordedRate]:
    return record(list(np.random.default_rng(seed).poisson(np.array(rates) * 10.0) / 10.0))


def test_poisson_noise_is_no_trend_and_no_step() -> None:
    """Two hours of a constant load, one forecast per window: at most one in 200 may expect a change of 10 %."""
    wrong = 0
    for seed in range(2):
        load = poisson([24.0] * 720, seed)
        levels = [forecast(load[max(0, at - 360) : at], lead_s=360.0).level_per_s for at in range(24, 720, 2)]
        wrong += sum(abs(level - 24.0) > 2.4 for level in levels)
    assert wrong <= 3


def test_one_window_that_differs_is_noise_unless_the_target_is_missed() -> None:
    assert forecast(record([*QUIET, 140.0]), lead_s=100.0).level_per_s == pytest.approx(100.0, rel=0.02)
    assert forecast(record([*QUIET, 200.0]), lead_s=100.0, is_late=True).level_per_s == pytest.approx(200.0, rel=0.02)


def test_a_step_is_the_new_level_and_is_not_extrapolated() -> None:
    """The first window after a step shows a part of it, because a window rarely begins with it."""
    for after in ([150.0, 200.0], [150.0, 200.0, 201.0], [150.0, 200.0, 199.0, 202.0], [150.0, 200.0] + [200.0] * 6):
        predicted = forecast(record([*QUIET, *after]), lead_s=400.0)
        assert predicted.level_per_s == pytest.approx(200.0, rel=0.06), after
    assert forecast(record([*QUIET, *[60.0] * 8]), lead_s=400.0).level_per_s == pytest.approx(60.0, rel=0.03)


def test_a_steady_load_is_expected_with_all_its_variation() -> None:
    noisy = [80.0, 120.0, 95.0, 105.0] * 60
    expected = forecast(record(noisy), lead_s=100.0)
    assert min(expected.rates_per_s) == 80.0 and max(expected.rates_per_s) == 120.0


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_ramp_is_extrapolated(seed: int) -> None:
    """From 30 to 100 rows/s in 90 minutes, as in the arena."""
    load = poisson([30.0 + 70.0 * at / 540 for at in range(400)], seed)
    predicted = forecast(load, lead_s=360.0)
    assert predicted.slope_per_s2 > 0
    assert predicted.level_per_s == pytest.approx(30.0 + 70.0 * 436 / 540, rel=0.05)


def test_a_slow_wave_is_followed_on_both_slopes() -> None:
    wave = [65.0 + 35.0 * math.sin(2.0 * math.pi * at / 360) for at in range(720)]

    def at(window: int) -> Forecast:
        return forecast(poisson(wave[:window], 1), lead_s=120.0)

    assert at(360).slope_per_s2 > 0 > at(180).slope_per_s2
    assert at(360).level_per_s == pytest.approx(wave[371], rel=0.07)


def test_a_falling_load_is_expected_at_its_present_level_and_never_below_0() -> None:
    falling = forecast(record([100.0 - 0.8 * at for at in range(120)]), lead_s=600.0)
    assert falling.slope_per_s2 < 0 and falling.level_per_s == pytest.approx(5.0, abs=2.0)
    assert (falling.rates_per_s >= 0).all() and np.isfinite(falling.rates_per_s).all()


def test_few_windows_give_their_latest_rate() -> None:
    assert forecast(record([10.0, 20.0]), lead_s=60.0).level_per_s == 15.0
    assert forecast(record([10.0, 20.0]), lead_s=60.0, is_late=True).level_per_s == 20.0
    assert forecast(record([0.0] * 50), lead_s=60.0).level_per_s == 0.0
