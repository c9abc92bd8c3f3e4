"""ReplayedPlan: the share of late windows of a plan under given rates, by the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.policies.auto.network import Floats, Prediction, QueueNetwork

_QUANTILES = np.arange(0.05, 1.0, 0.1)  # of the latency of a window under one rate; together they are the distribution


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
    """The predicted result of a plan: the latency of a window in each step, Gamma distributed."""

    mean_s: Floats  # of the mean latency of a window, or of the quantile of its rows
    shape: Floats
    late_steps: Floats  # probability that a window is above the target; 0 without a target

    @property
    def late(self) -> float:
        """Return the share of windows above the target."""
        return float(np.mean(self.late_steps))

    @property
    def latency_s(self) -> float:
        """Return the expected latency under the median of the rates."""
        return float(np.median(self.mean_s))

    @property
    def interval_s(self) -> tuple[float, float]:
        """Return the latencies between which 90 % of the windows are."""
        from scipy.special import gammaincinv  # imported late: a run without this policy does not need scipy

        windows = gammaincinv(self.shape[:, None], _QUANTILES) * (self.mean_s / self.shape)[:, None]
        low_s, high_s = np.quantile(windows, (0.05, 0.95))
        return float(low_s), float(high_s)


def replay(
    network: QueueNetwork, counts: Floats, loads: Loads, target: Target | None, *, correction: float
) -> ReplayedPlan:
    """Return latency and late windows of replica counts; measured latencies are `correction` times the model's."""
    from scipy.special import gammainc

    backlog = None if loads.backlog_rows is None else _backlog(network, loads.backlog_rows)
    predicted = network.predict(
        counts, loads.rates_per_s, step_s=loads.step_s, window_s=loads.window_s, backlog_rows=backlog
    )
    factor = correction * _quantile_factor(predicted, None if target is None else target.quantile)
    mean = np.maximum(1e-9, predicted.mean_s * factor)
    variance = np.maximum(1e-4 * mean**2, predicted.window_variance_s2 * factor**2)
    shape = mean**2 / variance
    late = np.zeros(len(mean))
    if target is not None:
        late = 1.0 - gammainc(shape, target.seconds * shape / mean) * (1.0 - predicted.stuck)
    return ReplayedPlan(mean_s=mean, shape=shape, late_steps=late)


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
