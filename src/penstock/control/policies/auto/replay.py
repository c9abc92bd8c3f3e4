"""ReplayedPlan: the share of late windows of a plan under given rates, by the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.policies.auto.network import Floats, Prediction, QueueNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Highest latency of a window: its mean, or a quantile of its rows."""

    seconds: float
    quantile: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Rates of consecutive steps, and the backlog of each operator at the start (None: no backlog)."""

    rates_per_s: Floats
    step_s: float
    window_s: float
    backlog_rows: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPlan:
    """The predicted result of a plan."""

    latency_s: float  # mean over the windows, or the mean of the quantiles
    low_s: float  # 90 % of the windows are between low_s and high_s
    high_s: float
    late: float  # share of windows above the target; 0 without a target


def replay(
    network: QueueNetwork, counts: Floats, loads: Loads, target: Target | None, *, correction: float
) -> ReplayedPlan:
    """Return latency and late windows of replica counts; measured latencies are `correction` times the model's."""
    from scipy.special import gammainc, gammaincinv  # imported late: a run without this policy does not need scipy

    backlog = None if loads.backlog_rows is None else _backlog(network, loads.backlog_rows)
    predicted = network.predict(
        counts, loads.rates_per_s, step_s=loads.step_s, window_s=loads.window_s, backlog_rows=backlog
    )
    factor = correction * _quantile_factor(predicted, None if target is None else target.quantile)
    mean = np.maximum(1e-9, predicted.mean_s * factor)
    variance = np.maximum(1e-4 * mean**2, predicted.window_variance_s2 * factor**2)
    shape, scale = mean**2 / variance, variance / mean
    late = 0.0
    if target is not None:
        on_time = gammainc(shape, target.seconds / scale) * (1.0 - predicted.stuck)
        late = float(np.mean(1.0 - on_time))
    low, high = gammaincinv(shape, 0.05) * scale, gammaincinv(shape, 0.95) * scale
    return ReplayedPlan(
        latency_s=float(mean.mean()), low_s=float(np.median(low)), high_s=float(np.median(high)), late=late
    )


def _backlog(network: QueueNetwork, rows: dict[str, float]) -> Floats:
    return np.array([max(rows.get(operator, 0.0) for operator in station) for station in network.stations])


def _quantile_factor(predicted: Prediction, quantile: float | None) -> Floats | float:
    """Return the quantile of the latency over the rows of a window, relative to the mean."""
    if quantile is None:
        return 1.0
    from scipy.special import gammaincinv

    variance = np.maximum(1e-4 * predicted.mean_s**2, predicted.row_variance_s2)
    shape = predicted.mean_s**2 / variance
    return np.asarray(gammaincinv(shape, quantile) / shape)
