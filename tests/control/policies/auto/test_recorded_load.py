"""The recorded load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.control.recorded_load import LoadRecord, RecordedRate, rates_of
from penstock.measure.window import Window
from penstock.store import RunStart, Store


def record(rates: list[float]) -> list[RecordedRate]:
    return [RecordedRate(10.0 * at, 10.0 * at + 10.0, rate) for at, rate in enumerate(rates)]


def window(start_s: float, rate: float | None, *, span_s: float = 10.0) -> Window:
    return Window(
        start_s=start_s,
        end_s=start_s + span_s,
        generation=1,
        external_rows_per_s=rate,
        latency=None,
        pipelines=(),
        operators=(),
    )


def test_rates_keep_the_number_of_rows() -> None:
    rates, step_s = rates_of(record([float(at) for at in range(240)]), since_s=0.0)
    assert len(rates) <= 120 and rates.sum() * step_s == pytest.approx(sum(range(240)) * 10.0)


def test_short_windows_are_added_up_and_an_hour_is_kept() -> None:
    load = LoadRecord()
    for at in range(3000):
        load.add(window(2.0 * at, 50.0 + (at % 2), span_s=2.0))
    assert all(rate.end_s - rate.start_s == pytest.approx(10.0) for rate in load.rates[:-1])
    assert load.rates[-1].end_s - load.rates[0].start_s <= 3620.0
    assert np.mean([rate.rows_per_s for rate in load.rates]) == pytest.approx(50.5, abs=0.15)


def test_a_clock_that_jumps_back_begins_a_new_record() -> None:
    load = LoadRecord()
    for start_s in (1000.0, 1010.0, 400.0, 410.0):
        load.add(window(start_s, 7.0))
    assert [rate.start_s for rate in load.rates] == [400.0, 410.0]


def test_a_resumed_run_continues_the_record(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_run(RunStart(dataflow="f", flow_file="-", pid=1, master="-", started_s=0.0))
        for at in range(5):
            store.add_window(window(10.0 * at, float(at)))
        assert [rate.rows_per_s for rate in LoadRecord.of(store).rates] == [0.0, 1.0, 2.0, 3.0, 4.0]
