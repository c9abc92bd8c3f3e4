"""The next interval's load, seen from the one before it."""

from __future__ import annotations

import numpy as np

from penstock.models.mst.samples import Floats


def upper_forecasts(rates: Floats, *, season: int, quantile: float = 0.95, window: int = 168) -> Floats:
    """For each interval t, a rate that its load stays under with probability `quantile`, from the loads before t only.

    With l = log rate and d(t) = l(t) - l(t-1): l(t) is foreseen as l(t-1) + phi d(t-season), the change of a season
    ago (a day, for hourly loads) damped by the phi in [0, 1] that fits the last `window` intervals best; the quantile
    of the forecast's errors over that window is added, if it is above 0. Interval 0 has no past: it is its own.

    >>> upper_forecasts(np.array([2.0, 2.0, 2.0, 2.0]), season=2).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    log = np.log(np.maximum(rates, max(float(rates.max()), 1e-300) * 1e-9))  # a load of 0 has a logarithm too
    change = np.diff(log, prepend=log[:1])
    before = np.concatenate([np.zeros(season), change])[: len(change)]  # d(t - season), 0 where there is none
    cross = np.concatenate([[0.0], np.cumsum(change * before)])
    square = np.concatenate([[0.0], np.cumsum(before**2)])
    end = np.arange(len(log))  # sums over [start, end): nothing of interval t itself
    start = np.maximum(0, end - window)
    with np.errstate(invalid="ignore", divide="ignore"):
        phi = np.nan_to_num(
            (cross[end] - cross[start]) / (square[end] - square[start]), nan=0.0, posinf=0.0, neginf=0.0
        )
    foreseen = np.concatenate([log[:1], log[:-1]]) + np.clip(phi, 0.0, 1.0) * before
    error = log - foreseen
    margin = np.array([_margin(error[max(1, t - window) : t], quantile) for t in range(len(log))])
    upper: Floats = np.exp(foreseen + margin)
    return upper


def _margin(errors: Floats, quantile: float) -> float:
    return max(0.0, float(np.quantile(errors, quantile))) if len(errors) else 0.0
