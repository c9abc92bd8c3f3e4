"""Forecast the load of a later interval from the loads that are known."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.samples import Floats


def upper_forecasts(rates: Floats, *, season: int, quantile: float = 0.95, window: int = 168, ahead: int = 1) -> Floats:
    """Return, for each interval t, a rate that the load exceeds with probability 1 - `quantile`.

    Only loads up to t - h are used, where h is `ahead`. Let l = log rate and d(t) = l(t) - l(t-h). The forecast of l(t)
    is l(t-h) + phi d(t-season): the change of one season ago (a day, for hourly loads), damped by the phi in [0, 1]
    that fits the last `window` intervals best. The quantile of the forecast errors over that window is added if it is
    positive. The first intervals have no past: the load of interval 0 is their forecast.

    >>> upper_forecasts(np.array([2.0, 2.0, 2.0, 2.0]), season=2).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    log = np.log(np.maximum(rates, max(float(rates.max()), 1e-300) * 1e-9))  # avoid log 0
    at = np.arange(len(log))
    earlier = log[np.maximum(0, at - ahead)]
    change = log - earlier
    # d(t - season), or 0 without a past; a season shorter than the horizon is not known yet.
    lag = season * -(-ahead // season)
    before = np.concatenate([np.zeros(lag), change])[: len(change)]
    cross = np.concatenate([[0.0], np.cumsum(change * before)])
    square = np.concatenate([[0.0], np.cumsum(before**2)])
    end = np.maximum(0, at - ahead + 1)  # sums over [start, end) contain known intervals only
    start = np.maximum(0, end - window)
    with np.errstate(invalid="ignore", divide="ignore"):
        phi = np.nan_to_num(
            (cross[end] - cross[start]) / (square[end] - square[start]), nan=0.0, posinf=0.0, neginf=0.0
        )
    forecast = earlier + np.clip(phi, 0.0, 1.0) * before
    error = log - forecast
    margin = np.array([_margin(error[max(1, last - window) : last], quantile) for last in end])
    upper: Floats = np.exp(forecast + margin)
    return upper


def _margin(errors: Floats, quantile: float) -> float:
    return max(0.0, float(np.quantile(errors, quantile))) if len(errors) else 0.0
