"""Axes of plots: tick positions and texts, and a time axis that leaves out the pauses between two starts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.report.history import Point

MINUTE, HOUR, DAY = 60, 3600, 86400
_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY)
_MAX_VALUE_STEPS = 4
_MAX_TIME_STEPS = 6.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTick:
    position: float  # share of the axis, 0 to 1
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from `low` to `high`, in the unit of the data."""

    low: float
    high: float
    ticks: tuple[AxisTick, ...]

    def position(self, value: float) -> float:
        """Return the position of a value as a share of the axis, 0 to 1.

        >>> Axis(low=0.0, high=50.0, ticks=()).position(10.0)
        0.2
        """
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def value_axis(highest: float, text: Callable[[float], str]) -> Axis:
    """Return an axis from 0 to a round number that is not below the highest value.

    >>> [tick.text for tick in value_axis(1730.0, compact).ticks]
    ['0', '500', '1k', '1.5k', '2k']
    >>> [tick.text for tick in value_axis(0.3, compact).ticks]
    ['0', '0.1', '0.2', '0.3']
    """
    highest = highest if highest > 0 else 1.0
    smallest_step = highest / _MAX_VALUE_STEPS
    power = 10.0 ** math.floor(math.log10(smallest_step))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= smallest_step * (1 - 1e-9))
    steps = math.ceil(highest / step - 1e-9)
    values = [
        float(f"{number * step:.10g}") for number in range(steps + 1)
    ]  # without rounding errors such as 0.30000004
    ticks = tuple(AxisTick(position=value / values[-1], text=text(value)) for value in values)
    return Axis(low=0.0, high=values[-1], ticks=ticks)


def count_axis(highest: int) -> Axis:
    """Return an axis with whole numbers from 0, with a step that gives at most nine ticks."""
    step = max(1, math.ceil(highest / 8))
    high = max(step * math.ceil(highest / step), 1) + step / 2
    ticks = tuple(AxisTick(position=value / high, text=str(value)) for value in range(0, math.ceil(high), step))
    return Axis(low=0.0, high=high, ticks=ticks)


def time_axis(length_s: float) -> Axis:
    """Return an axis of elapsed time.

    >>> [tick.text for tick in time_axis(100.0).ticks], [tick.text for tick in time_axis(5400.0).ticks]
    (['0:00', '0:30', '1:00', '1:30'], ['0', '15 min', '30 min', '45 min', '60 min', '75 min', '90 min'])
    """
    length_s = max(length_s, 1.0)
    days = DAY * math.ceil(length_s / DAY / _MAX_TIME_STEPS)
    step = next((step for step in _TIME_STEPS_S if length_s / step <= _MAX_TIME_STEPS), days)
    times = range(0, math.floor(length_s) + 1, step)
    ticks = tuple(AxisTick(position=at_s / length_s, text=_elapsed(at_s, step)) for at_s in times)
    return Axis(low=0.0, high=length_s, ticks=ticks)


def _elapsed(at_s: int, step: int) -> str:
    if step < MINUTE:
        return f"{at_s // MINUTE}:{at_s % MINUTE:02}"
    for unit_s, text in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if step % unit_s == 0:
            return f"{at_s // unit_s} {text}" if at_s else "0"
    raise AssertionError(step)


def compact(number: float) -> str:
    """Format a number for a tick.

    >>> compact(0.0), compact(0.25), compact(950.0), compact(12_500.0), compact(3e6)
    ('0', '0.25', '950', '12.5k', '3M')
    """
    for unit, text in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:g}{text}"
    return f"{number:g}"


class Timeline:
    """Map the wall clock to the run time, so that the time between two starts takes no space on the axis."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []
        self._run_before_s: list[float] = []  # run time before each stretch
        self.length_s = 0.0
        for _, group in groupby(points, key=lambda point: point.stretch):
            stretch = list(group)
            self._starts_s.append(stretch[0].start_s)
            self._ends_s.append(max(point.end_s for point in stretch))
            self._run_before_s.append(self.length_s)
            self.length_s += max(self._ends_s[-1] - self._starts_s[-1], 0.0)

    @property
    def resumed_at_s(self) -> tuple[float, ...]:
        """The run times at which the run was resumed."""
        return tuple(self._run_before_s[1:])

    def run_time_s(self, at_s: float) -> float:
        """Return the run time at a time of the wall clock."""
        stretch = max(bisect_right(self._starts_s, at_s) - 1, 0)
        within_s = min(max(at_s, self._starts_s[stretch]), self._ends_s[stretch]) - self._starts_s[stretch]
        return self._run_before_s[stretch] + within_s
