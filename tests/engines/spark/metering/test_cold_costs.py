"""The first rows after a start are slow. They determine a cost only until there are others."""

from __future__ import annotations

import pytest

from penstock.engines.spark.metering.costs import OperatorSamples


def test_a_cold_window_counts_until_there_is_another_one() -> None:
    samples = OperatorSamples()
    samples.add_clocked(2, 1.5, is_cold=True)
    assert samples.seconds_per_row() == pytest.approx(0.75)
    samples.add_clocked(100, 2.0)
    samples.add_clocked(100, 2.0)
    assert samples.seconds_per_row() == pytest.approx(0.02)
    samples.add_clocked(2, 1.5, is_cold=True)  # after a plan change
    assert samples.seconds_per_row() == pytest.approx(0.02)


def test_the_time_of_a_cold_window_without_rows_belongs_to_no_row() -> None:
    samples = OperatorSamples()
    samples.add_clocked(0, 3.0, is_cold=True)  # the first batch is empty and starts the workers
    samples.add_clocked(10, 0.2, is_cold=True)
    assert samples.seconds_per_row() == pytest.approx(0.02)
    samples.add_clocked(0, 0.1)  # a batch whose rows are counted in the next window
    samples.add_clocked(10, 0.1)
    assert samples.seconds_per_row() == pytest.approx(0.02)
