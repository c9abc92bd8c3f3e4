"""The history of a run as a bounded number of points, for any number of windows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import msgspec

from penstock.measure.window import OperatorWindow, Window

Number = TypeVar("Number", int, float)
MAX_POINTS = 240  # enough for the width of a screen, and few enough for a small page


class WindowSummary(NamedTuple):
    """The part of a window that the history needs: the summaries of a week fit into memory, its windows do not."""

    start_s: float
    end_s: float
    arriving_rows_per_s: float | None
    rows: int | None  # read from all sources
    backlog_rows: int | None  # at sources and cuts
    latency_rows: int  # rows with a known latency
    latency_mean_s: float | None
    latency_p95_s: float | None
    busy_s: float | None  # task time, the sum of all slots

    @property
    def span_s(self) -> float:
        return max(self.end_s - self.start_s, 0.0)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One or several windows.

    Rates and the mean latency are means. Backlog and p95 are maxima, so that no peak is lost.
    """

    start_s: float  # wall clock, seconds since the epoch
    end_s: float
    stretch: int  # number of the start to which the point belongs
    arriving_rows_per_s: float | None
    processed_rows_per_s: float | None
    backlog_rows: int | None
    latency_mean_s: float | None
    latency_p95_s: float | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of all windows. A value is None if no window contains it."""

    windows: int
    observed_s: float  # sum of the window lengths
    rows: int | None
    rows_per_s: float | None
    peak_rows_per_s: float | None
    backlog_rows: int | None  # in the last window
    peak_backlog_rows: int | None
    latency_mean_s: float | None  # over all rows
    worst_p95_s: float | None  # the highest p95 of a window
    busy_s: float | None


class RowCounter:
    """Replaces the row counts of windows by the differences of the totals since the start.

    Rows that are processed during a plan change are in the next total but in no window's own count.
    """

    def __init__(self) -> None:
        self._previous: dict[str, OperatorWindow] = {}

    def corrected(self, window: Window) -> Window:
        """Return the window with corrected counts; windows have to be passed in their order."""
        return msgspec.structs.replace(window, operators=tuple(map(self._operator, window.operators)))

    def _operator(self, operator: OperatorWindow) -> OperatorWindow:
        previous = self._previous.get(operator.operator)
        self._previous[operator.operator] = operator
        if previous is None:
            return operator
        return msgspec.structs.replace(
            operator,
            rows_in=_difference(previous.rows_in_total, operator.rows_in_total, operator.rows_in),
            rows_out=_difference(previous.rows_out_total, operator.rows_out_total, operator.rows_out),
        )


def summarise(window: Window, sources: Collection[str]) -> WindowSummary:
    latency = window.latency
    return WindowSummary(
        start_s=window.start_s,
        end_s=window.end_s,
        arriving_rows_per_s=window.external_rows_per_s,
        rows=_sum(operator.rows_in for operator in window.operators if operator.operator in sources),
        backlog_rows=_sum(operator.backlog_rows for operator in window.operators),
        latency_rows=0 if latency is None else latency.rows,
        latency_mean_s=None if latency is None else latency.mean_s,
        latency_p95_s=None if latency is None else latency.p95_s,
        busy_s=_sum(pipeline.busy_s for pipeline in window.pipelines),
    )


def points(windows: Sequence[WindowSummary], starts_s: Sequence[float]) -> tuple[Point, ...]:
    """Return the points of a run that was started at the times `starts_s`. No point spans two starts."""
    size = windows_per_point(len(windows))
    return tuple(
        _point(chunk, stretch)
        for stretch, group in groupby(windows, key=lambda window: bisect_right(starts_s, window.end_s))
        for chunk in _chunks(list(group), size)
    )


def windows_per_point(windows: int) -> int:
    return max(1, math.ceil(windows / MAX_POINTS))


def totals(windows: Sequence[WindowSummary]) -> Totals:
    observed_s = sum(window.span_s for window in windows)
    rows = _sum(window.rows for window in windows)
    return Totals(
        windows=len(windows),
        observed_s=observed_s,
        rows=rows,
        rows_per_s=rows / observed_s if rows is not None and observed_s else None,
        peak_rows_per_s=_max(w.rows / w.span_s for w in windows if w.rows is not None and w.span_s),
        backlog_rows=windows[-1].backlog_rows if windows else None,
        peak_backlog_rows=_max(window.backlog_rows for window in windows),
        latency_mean_s=_mean((window.latency_mean_s, window.latency_rows) for window in windows),
        worst_p95_s=_max(window.latency_p95_s for window in windows),
        busy_s=_sum(window.busy_s for window in windows),
    )


def _point(windows: Sequence[WindowSummary], stretch: int) -> Point:
    with_rows = [window for window in windows if window.rows is not None]
    with_rows_s = sum(window.span_s for window in with_rows)
    return Point(
        start_s=windows[0].start_s,
        end_s=windows[-1].end_s,
        stretch=stretch,
        arriving_rows_per_s=_mean((window.arriving_rows_per_s, window.span_s) for window in windows),
        processed_rows_per_s=sum(window.rows or 0 for window in with_rows) / with_rows_s if with_rows_s else None,
        backlog_rows=_max(window.backlog_rows for window in windows),
        latency_mean_s=_mean((window.latency_mean_s, window.latency_rows) for window in windows),
        latency_p95_s=_max(window.latency_p95_s for window in windows),
    )


def _chunks(windows: Sequence[WindowSummary], size: int) -> Iterator[Sequence[WindowSummary]]:
    for first in range(0, len(windows), size):
        yield windows[first : first + size]


def _difference(previous_total: int | None, total: int | None, own: int | None) -> int | None:
    return own if previous_total is None or total is None or total < previous_total else total - previous_total


def _mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight > 0]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def _sum(numbers: Iterable[Number | None]) -> Number | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None  # an unknown sum is not 0


def _max(numbers: Iterable[Number | None]) -> Number | None:
    return max((number for number in numbers if number is not None), default=None)
