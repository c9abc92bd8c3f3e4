"""The rates to expect next, from the recorded load.

The last twenty minutes are described by a constant, a line, or a step between two of these. A description with more
parameters is used only if it explains much more than noise does. Noise includes changes of the rate that last for up to
a minute. A line is extrapolated, a step is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.control.recorded_load import RecordedRate

_RECENT_S = 1200.0
_LINES_S = (1200.0, 600.0, 300.0)  # a line is fitted to the longest of these spans that it describes
_LATEST_S = 120.0  # a line describes a span if it fits the latest part of it
_BLOCK_S = 60.0  # means over this time are independent
_FEW = 4  # windows
_LEAST_NOISE = 0.01
_STEP_GAIN = 18.0  # reduction of chi^2 from which a step counts as one
_BETTER_THAN_LINE = 6.0
_SLOPE_ERRORS = 3.5  # standard errors from which a slope is a trend
_OUTLIER = 3.0  # standard deviations
_SMALL = 0.02  # relative change within the time of a decision that is not a trend
_MOST_GROWTH = 1.6  # a trend is extrapolated to at most this multiple
_SHORT_SEGMENT = 10  # windows after a step; the first of them may contain the rate from before
_NORMAL = 0.954  # median of |a - b| of two normal variables, in standard deviations


class Forecast(NamedTuple):
    """Rates to expect within the time that a change takes."""

    rates_per_s: np.ndarray
    level_per_s: float  # expected mean
    slope_per_s2: float
    present_per_s: float  # mean without the growth until then
    trend_s: float  # time for which the rates have had this slope; 0 without a slope


class _Noise(NamedTuple):
    """Relative standard deviations of one window, and of one window as part of a sum over windows."""

    window: float
    summed: float


def forecast(recorded: Sequence[RecordedRate], *, lead_s: float, is_late: bool = False) -> Forecast:
    """Return the rates of the next `lead_s` seconds.

    A single window that differs from those before it is noise, unless the latency target is missed (`is_late`).

    >>> rising = [RecordedRate(10.0 * i, 10.0 * i + 10.0, 100.0 + i) for i in range(60)]
    >>> round(forecast(rising, lead_s=100.0).level_per_s)
    170
    """
    now_s = recorded[-1].end_s
    known = [rate for rate in recorded if rate.end_s > now_s - _RECENT_S]
    x = np.array([(rate.start_s + rate.end_s) / 2.0 - now_s for rate in known])
    y = np.array([rate.rows_per_s for rate in known])
    if len(y) < _FEW:
        level = float(y.max() if is_late else y[-2:].mean())
        return Forecast(np.array([level]), level, 0.0, level, 0.0)
    noise = _noise_of(recorded)
    start = 0
    for _ in range(3):  # a step may follow another one
        split = _step(x[start:], y[start:], noise, fewest=1 if is_late else 2)
        if split == 0:
            break
        start += split
    if start and len(y) - start == 2 and not is_late and _is_unconfirmed(y, start, noise):
        return forecast(recorded[:-1], lead_s=lead_s)
    x, y = x[start:], y[start:]
    if start > 0 and len(y) <= 3 and y[-1] > y[0] * (1.0 + noise.window):
        x, y = x[-1:], y[-1:]  # the step was within the first window, which shows only a part of it
    fitted, slope, trend_s = _trend(x, y, noise, after_step=start > 0, lead_s=lead_s)
    level = min(fitted + max(0.0, slope) * lead_s, _MOST_GROWTH * max(fitted, 0.0))
    if start == 0 and slope == 0.0:
        return Forecast(y, level, 0.0, fitted, 0.0)
    return Forecast(
        np.maximum(0.0, level * (1.0 + _residuals(y, slope, noise))), level, slope, fitted, trend_s if slope else 0.0
    )


def _noise_of(recorded: Sequence[RecordedRate]) -> _Noise:
    """Return the noise of the rates. It is taken from differences, so that a slow change of the load adds little."""
    rates = np.array([rate.rows_per_s for rate in recorded])
    span_s = max(1e-9, (recorded[-1].end_s - recorded[0].start_s) / len(recorded))
    together = max(1, round(_BLOCK_S / span_s))
    window = _deviation(rates, min(len(rates) - 1, together))
    summed = window
    blocks = len(rates) // together
    if blocks >= _FEW + 1 and together > 1:
        means = rates[-blocks * together :].reshape(blocks, together).mean(axis=1)
        summed = max(summed, _deviation(means, 1) * np.sqrt(together))
    return _Noise(window, float(summed))


def _deviation(rates: np.ndarray, apart: int) -> float:
    differences = np.abs(rates[apart:] - rates[:-apart]) / np.maximum((rates[apart:] + rates[:-apart]) / 2.0, 1e-9)
    return max(_LEAST_NOISE, float(np.median(differences)) / _NORMAL)


def _step(x: np.ndarray, y: np.ndarray, noise: _Noise, *, fewest: int) -> int:
    """Return the index of the first window after a step; 0 if there was none."""
    count = len(y)
    if count < _FEW:
        return 0
    variance = (noise.summed * max(float(y.mean()), 1e-9)) ** 2
    sums = np.cumsum(y)
    left = np.arange(2, count - fewest + 1)
    right = count - left
    before, after = sums[left - 1] / left, (sums[-1] - sums[left - 1]) / right
    gain = left * right / count * (before - after) ** 2 / variance  # reduction of the sum of squares
    if not len(gain):
        return 0
    slope, _ = _line(x, y)
    line_gain = slope**2 * float(((x - x.mean()) ** 2).sum()) / variance
    best = int(np.argmax(gain))
    return int(left[best]) if gain[best] > max(_STEP_GAIN, line_gain + _BETTER_THAN_LINE) else 0


def _is_unconfirmed(y: np.ndarray, start: int, noise: _Noise) -> bool:
    """Return whether only the latest window differs from those before it."""
    before = float(y[:start].mean())
    return bool(abs(y[-2] - before) <= _OUTLIER * noise.window * before)


def _trend(
    x: np.ndarray, y: np.ndarray, noise: _Noise, *, after_step: bool, lead_s: float
) -> tuple[float, float, float]:
    """Return the present rate, its slope if that is significant, and the time that the line describes."""
    mean = float(y.mean())
    variance = (noise.summed * max(mean, 1e-9)) ** 2
    for span_s in _LINES_S:
        own = x > -span_s
        if own.sum() < _FEW:
            break
        slope, fitted = _line(x[own], y[own])
        latest = x > -_LATEST_S
        residual = float((y[latest] - fitted - slope * x[latest]).mean()) if latest.any() else 0.0
        if span_s != _LINES_S[-1] and residual**2 * latest.sum() > 4.0 * variance:
            continue  # the load has turned since
        if not _is_trend(x[own], y[own], variance, lead_s=lead_s):
            if span_s == _LINES_S[0]:
                continue  # a trend may have begun a few minutes ago
            return (mean if _fits(y, latest, mean, variance) else float(y[own].mean())), 0.0, 0.0
        if after_step and len(y) <= _SHORT_SEGMENT and not _is_trend(x[own][1:], y[own][1:], variance, lead_s=lead_s):
            return float(y[1:].mean()), 0.0, 0.0
        return max(0.0, fitted), slope, -float(x[own][0])
    return mean, 0.0, 0.0


def _fits(y: np.ndarray, latest: np.ndarray, mean: float, variance: float) -> bool:
    return not latest.any() or (float(y[latest].mean()) - mean) ** 2 * latest.sum() <= 6.0 * variance


def _is_trend(x: np.ndarray, y: np.ndarray, variance: float, *, lead_s: float) -> bool:
    if len(y) < _FEW:
        return False
    slope, _ = _line(x, y)
    error = np.sqrt(variance / max(1e-9, float(((x - x.mean()) ** 2).sum())))
    return bool(abs(slope) > _SLOPE_ERRORS * error and abs(slope) * lead_s > _SMALL * float(y.mean()))


def _residuals(y: np.ndarray, slope: float, noise: _Noise) -> np.ndarray:
    """Return the relative deviations from the description, or of normal noise if few windows are known.

    The deviations from a line are not used: they contain its misfit, which is large relative to the lowest rates.
    """
    if slope != 0.0 or len(y) < 3 * _FEW:
        return noise.window * np.linspace(-1.7, 1.7, 9)
    mean = max(float(y.mean()), 1e-9)
    return np.asarray((y - mean) / mean)


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return slope and value at 0 of the least squares line."""
    centred = x - x.mean()
    squares = float(centred @ centred)
    slope = float(centred @ y) / squares if squares > 0 else 0.0
    return slope, float(y.mean()) - slope * float(x.mean())
