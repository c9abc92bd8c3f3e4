"""The correction of a latency model: measured over predicted latency, learned while the load is steady.

A model leaves out what it does not know (network, scheduling, cold code), and in much the same proportion for similar
plans. So f is kept as a running geometric mean and predictions are multiplied by it:

    ln f(n) = (1 - l) ln f(n-1) + l ln (measured / predicted),     f within [1/100, 4]

Below 1 it also stands for rows that become many: the model adds up all of their stays, and a latency is that of one.

A latency that is still moving, or of rows that waited in a backlog, says nothing about a model of the steady state, and
is not learned from.
"""

from __future__ import annotations

from penstock.control.situation import Memory, Situation
from penstock.measure.window import Latency, Window

LEAST, MOST = 0.01, 4.0
_STEADY = 0.2  # how far the last window may be from the mean of the windows
_AT_ONCE_S = 1.0  # rows of so long may come at once and wait for each other


def learned(memory: Memory, key: str, *, measured_s: float, predicted_s: float, rate: float) -> Memory:
    """
    >>> learned({}, "f", measured_s=3.0, predicted_s=2.0, rate=0.3)
    {'f': 1.5}
    >>> learned({"f": 1.0}, "f", measured_s=4.0, predicted_s=1.0, rate=0.5)
    {'f': 2.0}
    """
    ratio = min(MOST, max(LEAST, measured_s / predicted_s))
    before = memory.get(key)
    return {**memory, key: ratio if before is None else before ** (1.0 - rate) * ratio**rate}


def measured_s(latency: Latency | None, quantile: float | None) -> float | None:
    if latency is None:
        return None
    if quantile is None:
        return latency.mean_s
    return {0.5: latency.p50_s, 0.95: latency.p95_s, 0.99: latency.p99_s}[quantile]


def steady(situation: Situation) -> bool:
    """Whether the last window looks like the smoothed one: in what arrives, and in how long rows stay."""
    window, latest = situation.window, situation.latest
    if window is None or latest is None:
        return False
    return near(window.external_rows_per_s, latest.external_rows_per_s) and near(_mean_s(window), _mean_s(latest))


def backlogged(situation: Situation, predicted_s: float) -> bool:
    """Whether more rows wait than are under way in the steady state, by Little's law, however wrong the model is.

    A backlog that drains slowly looks steady, in what arrives and in how long the rows stay that come out of it.
    """
    window = situation.window
    if window is None:
        return False
    return situation.waiting(window) > max(_AT_ONCE_S, MOST * predicted_s) * (window.external_rows_per_s or 0.0)


def _mean_s(window: Window) -> float | None:
    return None if window.latency is None else window.latency.mean_s


def near(one: float | None, other: float | None) -> bool:
    """As near as windows of a steady load are to each other."""
    return one is not None and other is not None and abs(one - other) <= _STEADY * max(one, other)
