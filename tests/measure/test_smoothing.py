from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow import PenstockError
from penstock.measure.smoothing import ExponentialSmoothing, MovingAverage
from penstock.measure.window import Latency, OperatorWindow, Window
from tests.support.sample_windows import window


def measured(rate: float | None, latency_s: float | None = None, number: int = 0) -> Window:
    latency = None
    if latency_s is not None:
        latency = Latency(rows=10, mean_s=latency_s, p50_s=latency_s, p95_s=2 * latency_s, p99_s=3 * latency_s)
    return msgspec.structs.replace(window(number), external_rows_per_s=rate, latency=latency)


def test_windowed_is_the_mean_of_the_latest() -> None:
    windows = [measured(rate, rate / 100, n) for n, rate in enumerate([900.0, 100.0, 200.0, 600.0])]
    smoothed = MovingAverage(3).smoothed(windows)
    assert smoothed is not None
    assert smoothed.external_rows_per_s == pytest.approx(300.0)
    assert smoothed.latency is not None and smoothed.latency.mean_s == pytest.approx(3.0)
    assert smoothed.latency.rows == 30
    assert (smoothed.start_s, smoothed.end_s) == (windows[1].start_s, windows[3].end_s)
    assert MovingAverage(5).smoothed(windows) is None


def test_exponential_follows_its_recursion() -> None:
    rates, alpha = [100.0, 200.0, 50.0, 400.0], 0.6
    by_hand = rates[0]
    for rate in rates[1:]:
        by_hand = alpha * by_hand + (1 - alpha) * rate
    smoothed = ExponentialSmoothing(alpha, min_windows=2).smoothed(
        [measured(rate, number=n) for n, rate in enumerate(rates)]
    )
    assert smoothed is not None and smoothed.external_rows_per_s == pytest.approx(by_hand)
    assert ExponentialSmoothing(alpha).smoothed([measured(1.0)] * 2) is None
    assert ExponentialSmoothing(0.0, min_windows=1).smoothed([measured(1.0), measured(7.0)]) == measured(7.0)


def test_a_value_that_some_windows_lack_is_that_of_the_others() -> None:
    smoothed = MovingAverage(3).smoothed([measured(None), measured(10.0, 2.0, 1), measured(20.0, None, 2)])
    assert smoothed is not None
    assert smoothed.external_rows_per_s == pytest.approx(15.0)
    assert smoothed.latency is not None and smoothed.latency.mean_s == pytest.approx(2.0)
    nothing = MovingAverage(2).smoothed([measured(None), measured(None, number=1)])
    assert nothing is not None and nothing.external_rows_per_s is None and nothing.latency is None


def test_counts_add_up_and_levels_are_the_last() -> None:
    smoothed = MovingAverage(2).smoothed([window(0), window(1)])
    assert smoothed is not None
    split = smoothed.operator("split")
    assert (split.rows_in, split.seconds_per_row, split.replicas) == (8000, pytest.approx(12.5e-6), 2)
    assert smoothed.pipelines[0].batches == 6 and smoothed.pipelines[0].batch_s == pytest.approx(0.5)
    assert smoothed.operator("lines").backlog_rows == 1234567


def test_a_utilisation_is_weighted_by_its_time() -> None:
    """A batch of 9 s ended in the first window; the query was idle for the 1 s of the second one."""
    windows = []
    for busy, seconds in ((0.9, 9.0), (0.0, 1.0), (None, 0.0)):
        operator = OperatorWindow.knowing("a", "out", utilisation=busy, utilisation_s=seconds)
        windows.append(msgspec.structs.replace(measured(1.0), operators=(operator,)))
    smoothed = MovingAverage(3).smoothed(windows)
    assert smoothed is not None
    assert smoothed.operator("a").utilisation == pytest.approx(0.81)
    assert smoothed.operator("a").utilisation_s == pytest.approx(10.0)


@given(st.lists(st.floats(0.0, 1e6), min_size=3, max_size=30), st.floats(0.0, 0.99))
@settings(max_examples=40, deadline=None)
def test_a_mean_lies_between_its_values(rates: list[float], alpha: float) -> None:
    windows = [measured(rate, number=n) for n, rate in enumerate(rates)]
    for smoothing in (MovingAverage(3), ExponentialSmoothing(alpha)):
        smoothed = smoothing.smoothed(windows)
        assert smoothed is not None and smoothed.external_rows_per_s is not None
        seen = rates[-smoothing.reach :]
        assert min(seen) * (1 - 1e-9) - 1e-9 <= smoothed.external_rows_per_s <= max(seen) * (1 + 1e-9) + 1e-9


def test_invalid_smoothings_are_refused() -> None:
    for wrong in (lambda: MovingAverage(0), lambda: ExponentialSmoothing(1.0), lambda: ExponentialSmoothing(-0.1)):
        with pytest.raises(PenstockError):
            wrong()
