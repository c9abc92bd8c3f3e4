"""A run over time in a bounded number of points, however many windows it has."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import msgspec

from penstock.measure.window import Window

Number = TypeVar("Number", int, float)
MOST_POINTS = 240  # as many as a screen can show, and a page stays small


class Moment(NamedTuple):
    """What the history needs of one window: a week of windows would not fit into memory, a week of these does."""

    start_s: float
    end_s: float
    arriving_rows_per_s: float | None
    rows: int | None  # read from all sources
    backlog_rows: int | None  # at sources and cuts
    stays: int  # rows whose latency is known
    mean_s: float | None
    p95_s: float | None
    busy_s: float | None  # task time, all slots added up

    @property
    def span_s(self) -> float:
        return max(self.end_s - self.start_s, 0.0)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One or several windows. Rates and the mean latency are means; backlog and p95 are the highest of them, so that
    no peak is lost where there are fewer points than windows."""

    start_s: float  # wall clock, seconds since the epoch
    end_s: float
    stretch: int  # which start of the run it belongs to: nothing ran between two of them
    arriving_rows_per_s: float | None
    processed_rows_per_s: float | None
    backlog_rows: int | None
    latency_mean_s: float | None
    latency_p95_s: float | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Of all windows; None where no window says."""

    windows: int
    observed_s: float  # the spans of the windows added up: without the time in which nothing ran
    rows: int | None
    rows_per_s: float | None
    peak_rows_per_s: float | None
    backlog_rows: int | None  # in the last window
    peak_backlog_rows: int | None
    latency_mean_s: float | None  # over all rows
    worst_p95_s: float | None  # of a window
    busy_s: float | None


def moment(window: Window, sources: Collection[str]) -> Moment:
    stay = window.latency
    return Moment(
        start_s=window.start_s,
        end_s=window.end_s,
        arriving_rows_per_s=window.external_rows_per_s,
        rows=_sum(one.rows_in for one in window.operators if one.operator in sources),
        backlog_rows=_sum(one.backlog_rows for one in window.operators),
        stays=0 if stay is None else stay.rows,
        mean_s=None if stay is None else stay.mean_s,
        p95_s=None if stay is None else stay.p95_s,
        busy_s=_sum(one.busy_s for one in window.pipelines),
    )


def points(moments: Sequence[Moment], starts: Sequence[float]) -> tuple[Point, ...]:
    """`starts`: when the run was started and resumed, in order. No point is of two stretches."""
    each = windows_per_point(len(moments))
    return tuple(
        _point(some, stretch)
        for stretch, alike in groupby(moments, key=lambda one: bisect_right(starts, one.end_s))
        for some in _chunks(list(alike), each)
    )


def windows_per_point(windows: int) -> int:
    return max(1, math.ceil(windows / MOST_POINTS))


def totals(moments: Sequence[Moment]) -> Totals:
    observed_s = sum(one.span_s for one in moments)
    rows = _sum(one.rows for one in moments)
    return Totals(
        windows=len(moments),
        observed_s=observed_s,
        rows=rows,
        rows_per_s=rows / observed_s if rows is not None and observed_s else None,
        peak_rows_per_s=_highest(one.rows / one.span_s for one in moments if one.rows is not None and one.span_s),
        backlog_rows=moments[-1].backlog_rows if moments else None,
        peak_backlog_rows=_highest(one.backlog_rows for one in moments),
        latency_mean_s=_mean((one.mean_s, one.stays) for one in moments),
        worst_p95_s=_highest(one.p95_s for one in moments),
        busy_s=_sum(one.busy_s for one in moments),
    )


def _point(some: Sequence[Moment], stretch: int) -> Point:
    read = [one for one in some if one.rows is not None]
    read_s = sum(one.span_s for one in read)
    return Point(
        start_s=some[0].start_s,
        end_s=some[-1].end_s,
        stretch=stretch,
        arriving_rows_per_s=_mean((one.arriving_rows_per_s, one.span_s) for one in some),
        processed_rows_per_s=sum(one.rows or 0 for one in read) / read_s if read_s else None,
        backlog_rows=_highest(one.backlog_rows for one in some),
        latency_mean_s=_mean((one.mean_s, one.stays) for one in some),
        latency_p95_s=_highest(one.p95_s for one in some),
    )


def _chunks(moments: Sequence[Moment], each: int) -> Iterator[Sequence[Moment]]:
    for first in range(0, len(moments), each):
        yield moments[first : first + each]


def _mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight > 0]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def _sum(numbers: Iterable[Number | None]) -> Number | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if known else None  # nothing known is not nothing


def _highest(numbers: Iterable[Number | None]) -> Number | None:
    return max((one for one in numbers if one is not None), default=None)
