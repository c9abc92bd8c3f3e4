"""Forecast the load of the next interval from the loads before it."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.samples import Floats


def upper_forecasts(rates: Floats, *, season: int, quantile: float = 0.95, window: int = 168) -> Floats:
    """Return, for each interval t, a rate that the load exceeds with probability 1 - `quantile`.

    Only loads before t are used. Let l = log rate and d(t) = l(t) - l(t-1). The forecast of l(t) is
    l(t-1) + phi d(t-season): the change of one season ago (a day, for hourly loads), damped by the phi in [0, 1] that
    fits the last `window` intervals best. The quantile of the forecast errors over that window is added if it is
    positive. Interval 0 has no past, so its forecast is its own load.

    >>> upper_forecasts(np.array([2.0, 2.0, 2.0, 2.0]), season=2).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    log = np.log(np.maximum(rates, max(float(rates.max()), 1e-300) * 1e-9))  # avoid log 0
    change = np.diff(log, prepend=log[:1])
    before = np.concatenate([np.zeros(season), change])[: len(change)]  # d(t - season), or 0 without a past
    cross = np.concatenate([[0.0], np.cumsum(change * before)])
    square = np.concatenate([[0.0], np.cumsum(before**2)])
    end = np.arange(len(log))  # sums over [start, end) exclude interval t itself
    start = np.maximum(0, end - window)
    with np.errstate(invalid="ignore", divide="ignore"):
        phi = np.nan_to_num(
            (cross[end] - cross[start]) / (square[end] - square[start]), nan=0.0, posinf=0.0, neginf=0.0
        )
    forecast = np.concatenate([log[:1], log[:-1]]) + np.clip(phi, 0.0, 1.0) * before
    error = log - forecast
    margin = np.array([_margin(error[max(1, t - window) : t], quantile) for t in range(len(log))])
    upper: Floats = np.exp(forecast + margin)
    return upper


def _margin(errors: Floats, quantile: float) -> float:
    return max(0.0, float(np.quantile(errors, quantile))) if len(errors) else 0.0
