"""The arrival rate of a query, from the rows that its batches found.

A batch determines its rows when it begins. The rows of all batches plus the rows that the last one left behind are the
rows that arrived until then. The rate is the slope of this line over several batches: a single batch is a biased
sample, because a source may release its rows once per second, and a long batch finds the rows of a long time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

_MIN_POINTS = 5
_MAX_POINTS = 2_000
_MAX_HORIZONS = 4.0  # a few batches that are far apart may cover so many times the horizon


class _Arrived(NamedTuple):
    at_s: float
    rows: float  # cumulative


@dataclass(slots=True)
class Arrivals:
    """The rows that have arrived at one query by the start of each of its batches."""

    _points: deque[_Arrived] = field(default_factory=lambda: deque(maxlen=_MAX_POINTS))
    _read: float = 0.0
    _idle: bool = False

    def add_batch(self, began_s: float, rows: float, left_rows: float | None) -> None:
        """Add a batch that read `rows` and left `left_rows` behind; None: unknown, and taken as no change."""
        self._idle = False
        self._read += rows
        if not self._points:
            self._read = 0.0  # the first batch reads rows that arrived before
        self._points.append(_Arrived(began_s, self._read + (left_rows or 0.0)))

    def set_total(self, at_s: float, rows: float) -> None:
        """Add the total that has arrived, for a source that counts it in rows or in files."""
        if self._points and rows > self._points[-1].rows:
            self._idle = False
        self._points.append(_Arrived(at_s, rows))

    def skip(self, rows: float) -> None:
        """Count rows whose batch was not reported."""
        self._read += rows

    def set_idle(self) -> None:
        """Note that no rows have arrived for a long time."""
        self._idle = True

    @property
    def interval_s(self) -> float:
        """Return the mean time between the latest batches."""
        latest = list(self._points)[-_MIN_POINTS:]
        return (latest[-1].at_s - latest[0].at_s) / (len(latest) - 1) if len(latest) > 1 else 0.0

    def rate_per_s(self, *, horizon_s: float) -> float | None:
        """Return the rows/s over the last `horizon_s` seconds and at least the last batches; None before two batches.

        >>> arrivals = Arrivals()
        >>> for second in range(10):
        ...     arrivals.add_batch(float(second), 300.0, None)
        >>> arrivals.rate_per_s(horizon_s=5.0)
        300.0
        """
        if len(self._points) < 2:
            return None
        if self._idle:
            return 0.0
        last_s = self._points[-1].at_s
        recent = self._since(last_s - horizon_s)
        if len(recent) < _MIN_POINTS:
            recent = self._since(last_s - _MAX_HORIZONS * horizon_s)[-_MIN_POINTS:]
        if len(recent) < 2:
            recent = list(self._points)[-2:]
        seconds = np.array([point.at_s - recent[0].at_s for point in recent])
        rows = np.array([point.rows - recent[0].rows for point in recent])
        centred = seconds - seconds.mean()
        squares = float(centred @ centred)
        if squares <= 1e-9:
            return None
        return max(0.0, float(centred @ rows) / squares)

    def _since(self, at_s: float) -> list[_Arrived]:
        return [point for point in self._points if point.at_s >= at_s]
