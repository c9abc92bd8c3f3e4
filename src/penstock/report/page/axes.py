"""Axes: where ticks go and what they say, and times with the pauses between two starts left out."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.ticker import MaxNLocator

from penstock.report.history import Point

MINUTE, HOUR, DAY = 60, 3600, 86400
_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    *(MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    DAY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float  # share of the axis, 0 to 1
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From `low` to `high`, in the unit of the data."""

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def share(self, value: float) -> float:
        """Where on the axis, 0 to 1.

        >>> Axis(low=0.0, high=50.0, ticks=()).share(10.0)
        0.2
        """
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def value_axis(highest: float, say: Callable[[float], str]) -> Axis:
    """From 0 to a round number at or above the highest.

    >>> [tick.text for tick in value_axis(1730.0, compact).ticks]
    ['0', '500', '1k', '1.5k', '2k']
    """
    values = MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]).tick_values(0.0, highest if highest > 0 else 1.0)
    top = float(values[-1])
    return Axis(low=0.0, high=top, ticks=tuple(Tick(at=float(one) / top, text=say(float(one))) for one in values))


def count_axis(highest: int) -> Axis:
    """0, 1, 2, ... for things that are counted, with a step that leaves few of them."""
    step = max(1, math.ceil(highest / 8))
    high = max(step * math.ceil(highest / step), 1) + step / 2
    ticks = tuple(Tick(at=one / high, text=str(one)) for one in range(0, math.ceil(high), step))
    return Axis(low=0.0, high=high, ticks=ticks)


def time_axis(length_s: float) -> Axis:
    """
    >>> [tick.text for tick in time_axis(100.0).ticks], [tick.text for tick in time_axis(5400.0).ticks]
    (['0:00', '0:30', '1:00', '1:30'], ['0', '15 min', '30 min', '45 min', '60 min', '75 min', '90 min'])
    """
    length_s = max(length_s, 1.0)
    step = next((one for one in _STEPS_S if length_s / one <= 6.5), DAY * math.ceil(length_s / DAY / 6.5))
    marks = range(0, math.floor(length_s) + 1, step)
    return Axis(low=0.0, high=length_s, ticks=tuple(Tick(at=one / length_s, text=_ran(one, step)) for one in marks))


def _ran(at_s: int, step: int) -> str:
    if step < MINUTE:
        return f"{at_s // MINUTE}:{at_s % MINUTE:02}"
    for unit, text in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if step % unit == 0:
            return f"{at_s // unit} {text}" if at_s else "0"
    raise AssertionError(step)


def compact(number: float) -> str:
    """
    >>> compact(0.0), compact(0.25), compact(950.0), compact(12_500.0), compact(3e6)
    ('0', '0.25', '950', '12.5k', '3M')
    """
    for unit, text in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:g}{text}"
    return f"{number:g}"


class Timeline:
    """Wall clock -> seconds that it ran: a run resumed after a weekend is not drawn with the weekend in it."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._before: list[float] = []  # ran before this stretch
        self.length_s = 0.0
        for _, some in groupby(points, key=lambda one: one.stretch):
            stretch = list(some)
            self._starts.append(stretch[0].start_s)
            self._ends.append(max(one.end_s for one in stretch))
            self._before.append(self.length_s)
            self.length_s += max(self._ends[-1] - self._starts[-1], 0.0)

    @property
    def resumed_at(self) -> tuple[float, ...]:
        """When, as seconds that it ran."""
        return tuple(self._before[1:])

    def ran_s(self, at_s: float) -> float:
        stretch = max(bisect_right(self._starts, at_s) - 1, 0)
        within = min(max(at_s, self._starts[stretch]), self._ends[stretch]) - self._starts[stretch]
        return self._before[stretch] + within
