"""The recorded load: the rates at which rows arrived over the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.measure.window import Window

if TYPE_CHECKING:
    from penstock.store import Store

HORIZON_S = 3600.0
_STEPS = 120  # the recorded hour is replayed in this many steps at most
_SHORTEST_S = 10.0  # windows are added up to this length
_OVERLAP_S = 1.0  # two windows may overlap so much, by rounding or because the clock was adjusted
_MOST_WINDOWS = 1800  # an hour of windows of two seconds


class RecordedRate(NamedTuple):
    """The rows/s that arrived at all sources between two times."""

    start_s: float
    end_s: float
    rows_per_s: float


class LoadRecord:
    """The rates of the last hour, also of windows that were recorded before the run was resumed.

    Windows shorter than ten seconds are added up. A window that does not follow the latest one (the clock was set back)
    begins a new record.
    """

    def __init__(self) -> None:
        self.rates: tuple[RecordedRate, ...] = ()

    @staticmethod
    def of(store: Store) -> LoadRecord:
        record = LoadRecord()
        for _, window in store.windows(last=_MOST_WINDOWS):
            record.add(window)
        return record

    def add(self, window: Window) -> None:
        rate = window.external_rows_per_s
        span_s = window.end_s - window.start_s
        if rate is None or span_s <= 0:
            return
        known = self.rates
        if known and window.start_s < known[-1].end_s - _OVERLAP_S:
            known = ()
        last = known[-1] if known else None
        if last is not None and window.end_s - last.start_s <= _SHORTEST_S + _OVERLAP_S:
            rows = last.rows_per_s * (last.end_s - last.start_s) + rate * span_s
            known = known[:-1]
            entry = RecordedRate(last.start_s, window.end_s, rows / (last.end_s - last.start_s + span_s))
        else:
            entry = RecordedRate(window.start_s, window.end_s, rate)
        since_s = entry.end_s - HORIZON_S
        first = next((at for at, old in enumerate(known) if old.end_s > since_s), len(known))
        self.rates = (*known[first:], entry)


def rates_of(recorded: Sequence[RecordedRate], *, since_s: float) -> tuple[np.ndarray, float]:
    """Return the rates since a time in equal steps, and the length of a step in seconds."""
    known = [rate for rate in recorded if rate.end_s > since_s]
    if not known:
        return np.zeros(0), 1.0
    together = -(-len(known) // _STEPS)
    groups = [known[at : at + together] for at in range(0, len(known), together)]
    seconds = [sum(rate.end_s - rate.start_s for rate in group) for group in groups]
    rows = [sum((rate.end_s - rate.start_s) * rate.rows_per_s for rate in group) for group in groups]
    rates = np.array([count / span if span > 0 else 0.0 for count, span in zip(rows, seconds, strict=True)])
    return rates, float(np.median(seconds))
