"""The contract of smoothings: every member of the family passes the same tests."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.measure.smoothing import ExponentialSmoothing, MovingAverage, Smoothing
from penstock.measure.window import Window
from tests.support.sample_windows import window

SMOOTHINGS: dict[str, Smoothing] = {
    "last window": MovingAverage(1),
    "moving average": MovingAverage(4),
    "exponential": ExponentialSmoothing(0.5, min_windows=3),
    "exponential, no memory": ExponentialSmoothing(0.0, min_windows=1),
}
each_smoothing = pytest.mark.parametrize("smoothing", SMOOTHINGS.values(), ids=SMOOTHINGS.keys())


def windows_of(rates: list[float]) -> list[Window]:
    return [msgspec.structs.replace(window(number), external_rows_per_s=rate) for number, rate in enumerate(rates)]


def smoothed(smoothing: Smoothing, rates: list[float]) -> Window:
    result = smoothing.smoothed(windows_of(rates))
    assert result is not None
    return result


@each_smoothing
def test_no_windows_give_no_result(smoothing: Smoothing) -> None:
    assert smoothing.smoothed([]) is None


@each_smoothing
def test_equal_windows_keep_their_rates_and_costs(smoothing: Smoothing) -> None:
    result, sample = smoothed(smoothing, [2000.0] * 20), window()
    assert result.external_rows_per_s == pytest.approx(2000.0)
    assert result.latency is not None and sample.latency is not None
    assert result.latency.p95_s == pytest.approx(sample.latency.p95_s)
    assert result.operator("count").seconds_per_row == pytest.approx(sample.operator("count").seconds_per_row)
    assert result.pipelines[0].backlog_rows == sample.pipelines[0].backlog_rows


@each_smoothing
def test_only_windows_within_the_reach_count(smoothing: Smoothing) -> None:
    recent = [float(100 + n) for n in range(smoothing.reach)]
    assert smoothing.smoothed(windows_of([1e6] * 5 + recent)[5:]) == smoothing.smoothed(
        windows_of([7.0] * 5 + recent)[5:]
    )
    assert smoothed(smoothing, [1e6] * 5 + recent) == smoothed(smoothing, [7.0] * 5 + recent)


@each_smoothing
@given(rates=st.lists(st.floats(0.0, 1e6), min_size=4, max_size=15))
@settings(max_examples=20, deadline=None)
def test_a_smoothed_rate_lies_between_the_smallest_and_the_largest(smoothing: Smoothing, rates: list[float]) -> None:
    rate = smoothed(smoothing, rates).external_rows_per_s
    assert rate is not None
    assert min(rates) - 1e-6 <= rate <= max(rates) + 1e-6
