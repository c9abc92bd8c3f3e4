"""The recorded load: rates over the last hour, their trend, and the rates to expect next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.measure.window import Window

if TYPE_CHECKING:
    from penstock.store import Store

HORIZON_S = 3600.0
_STEPS = 120  # the recorded hour is replayed in this many steps at most
_TREND_S = 240.0
_STEADY_S = 1200.0  # a load that is steady for so long is taken as it was
_CORRELATED_S = 60.0  # rates that are so far apart are independent
_LEAST_NOISE = 0.01
_SHIFT = 3.0  # standard deviations by which the latest rates differ from the trend after a step of the load
_FEW = 4
_LATEST = 5  # windows that show whether the rate goes on rising
_SIGNIFICANT = 2.5  # standard errors from which a slope is a trend
_CONTINUED = 1.0  # the same if the load has been rising or falling for longer
_SMALL = 0.02  # relative change within the time of a decision that is not a trend
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


class Forecast(NamedTuple):
    """Rates to expect within the time that a change takes."""

    rates_per_s: np.ndarray
    level_per_s: float  # expected mean
    slope_per_s2: float


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


def forecast(recorded: Sequence[RecordedRate], *, lead_s: float) -> Forecast:
    """Return the rates of the next `lead_s` seconds.

    - The load is steady: the rates of the last twenty minutes, with all their variation.
    - The latest two windows differ from the minutes before them by more than noise: their rate.
    - Otherwise: the level of the last minutes, and their trend if it is significant.

    Noise is the typical difference of rates that are a minute apart, which a slow change of the load does not affect.

    >>> rising = [RecordedRate(10.0 * i, 10.0 * i + 10.0, 100.0 + i) for i in range(60)]
    >>> round(forecast(rising, lead_s=100.0).level_per_s)
    170
    """
    now_s = recorded[-1].end_s
    known = [rate for rate in recorded if rate.end_s > now_s - _STEADY_S]
    x = np.array([(rate.start_s + rate.end_s) / 2.0 - now_s for rate in known])
    y = np.array([rate.rows_per_s for rate in known])
    latest = float(y[-2:].mean())
    if len(y) < _FEW:
        return Forecast(y[-2:], latest, 0.0)
    noise = _noise(recorded)
    local = x > -_TREND_S
    before = local.copy()
    before[-2:] = False
    usual = float(y[local].mean())
    if before.sum() >= _FEW:
        slope, fitted = _line(x[before], y[before])
        shift = latest - fitted - slope * float(x[-2:].mean())
        is_unconfirmed = abs(y[-2] - y[-3]) <= _SHIFT * noise * usual < abs(y[-1] - y[-2])
        if is_unconfirmed:  # the load changed within the latest window, which shows only a part of the change
            return forecast(recorded[:-1], lead_s=lead_s)
        if abs(shift) > _SHIFT * noise * usual and abs(latest - float(y[before].mean())) > _SHIFT * noise * usual:
            level, slope = _after_shift(x, y, lead_s=lead_s, rises=shift > 0)
            return Forecast(level * (1.0 + noise * np.linspace(-1.5, 1.5, 7)), level, slope)
    blocks = max(1.0, min(_TREND_S, -float(x[0])) / _CORRELATED_S)
    slope, fitted = _line(x[local], y[local])
    error = noise * usual / max(1e-9, float(np.std(x[local])) * np.sqrt(blocks))
    recent, mean = float(y[local].mean()), float(y.mean())
    is_steady = abs(recent - mean) <= 2.0 * noise * mean / np.sqrt(blocks)
    # A trend that has lasted for twenty minutes needs less evidence in the last four.
    required = _SIGNIFICANT if is_steady or (recent - mean) * slope <= 0 else _CONTINUED
    if abs(slope) > required * error and abs(slope) * lead_s > _SMALL * usual:
        level = max(0.0, fitted + max(0.0, slope) * lead_s)
        return Forecast(np.maximum(0.0, level * (1.0 + noise * np.linspace(-2.0, 2.0, 9))), level, slope)
    if is_steady:
        return Forecast(y, mean, 0.0)
    return Forecast(recent * (1.0 + noise * np.linspace(-2.0, 2.0, 9)), recent, 0.0)


def _after_shift(x: np.ndarray, y: np.ndarray, *, lead_s: float, rises: bool) -> tuple[float, float]:
    """Return level and slope after the rate has left its line: after a step it stays, on a steep slope it goes on.

    In a step, one of the latest differences is most of the sum.
    """
    latest = y[-_LATEST:]
    if not rises:
        return float(y[-2:].mean()), 0.0
    level = float(latest[-2:].max())
    steps = np.diff(latest)
    total = float(latest[-1] - latest[0])
    if len(steps) < 3 or total <= 0 or float(steps.max()) > 0.6 * total or float(steps.min()) < 0:
        return level, 0.0
    slope = total / float(x[-1] - x[-len(latest)])
    return level + slope * lead_s, slope


def _noise(recorded: Sequence[RecordedRate]) -> float:
    """Return the standard deviation of the rates about their trend, relative to their mean."""
    rates = np.array([rate.rows_per_s for rate in recorded])
    span_s = (recorded[-1].end_s - recorded[0].start_s) / len(recorded)
    apart = max(1, min(len(rates) - 1, round(_CORRELATED_S / max(span_s, 1e-9))))
    differences = np.abs(rates[apart:] - rates[:-apart]) / np.maximum((rates[apart:] + rates[:-apart]) / 2.0, 1e-9)
    # The median of |a - b| of two normal variables is 0.954 standard deviations.
    return max(_LEAST_NOISE, float(np.median(differences)) / 0.954)


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return slope and value at 0 of the least squares line."""
    centred = x - x.mean()
    squares = float(centred @ centred)
    slope = float(centred @ y) / squares if squares > 0 else 0.0
    return slope, float(y.mean()) - slope * float(x.mean())
