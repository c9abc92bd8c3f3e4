"""The history of a run as a bounded number of points, for any number of windows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import msgspec

from penstock.measure.window import Latency, OperatorWindow, Window
from penstock.store import LatencyTarget

Number = TypeVar("Number", int, float)
Item = TypeVar("Item")
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
    used_slots: int  # slots that the plan can use at once
    batches: int
    batch_max_s: float | None
    warm_up: bool  # headline figures leave it out
    target_s: float | None  # latency target
    target_latency_s: float | None  # the latency to which the target applies

    @property
    def span_s(self) -> float:
        return max(self.end_s - self.start_s, 0.0)

    @property
    def meets_target(self) -> bool | None:
        """Whether the latency is within its target; None if one of them is unknown."""
        if self.target_s is None or self.target_latency_s is None:
            return None
        return self.target_latency_s <= self.target_s


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One or several windows.

    Rates, the mean latency and the utilisation are means. Backlog and p95 are maxima, so that no peak is lost.
    """

    start_s: float  # wall clock, seconds since the epoch
    end_s: float
    stretch: int  # number of the start to which the point belongs
    arriving_rows_per_s: float | None
    processed_rows_per_s: float | None
    backlog_rows: int | None
    latency_mean_s: float | None
    latency_p95_s: float | None
    utilisation: float | None  # task time / (slots x time)
    target_s: float | None  # latency target
    target_latency_s: float | None  # the latency to which the target applies
    warm_up: bool


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of all windows. A value is None if no window contains it.

    Rates, latencies, peaks, the utilisation and the share within the target leave out the warm-up after a start, unless
    there are no other windows.
    """

    windows: int
    observed_s: float  # sum of the window lengths
    warm_up_s: float  # length of the windows that are left out
    rows: int | None  # including the warm-up
    rows_per_s: float | None
    peak_rows_per_s: float | None
    backlog_rows: int | None  # in the last window
    peak_backlog_rows: int | None
    latency_mean_s: float | None  # over all rows
    worst_p95_s: float | None  # the highest p95 of a window
    share_within_target: float | None  # share of the time in which rows left or waited
    utilisation: float | None  # task time / (slots x time)
    busy_s: float | None  # including the warm-up
    used_slot_s: float  # slots that the plan can use at once x time, including the warm-up


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


def summarise(window: Window, sources: Collection[str], target: LatencyTarget | None = None) -> WindowSummary:
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
        used_slots=window.used_slots,
        batches=sum(pipeline.batches for pipeline in window.pipelines),
        batch_max_s=_max(pipeline.batch_max_s for pipeline in window.pipelines),
        warm_up=window.warm_up,
        target_s=None if target is None else target.seconds,
        target_latency_s=None if target is None or latency is None else _statistic(latency, target.quantile),
    )


def _statistic(latency: Latency, quantile: float | None) -> float:
    return {None: latency.mean_s, 0.5: latency.p50_s, 0.95: latency.p95_s, 0.99: latency.p99_s}[quantile]


def points(
    windows: Sequence[WindowSummary], starts_s: Sequence[float], utilisations: Sequence[float | None]
) -> tuple[Point, ...]:
    """Return the points of a run that was started at the times `starts_s`. No point spans two starts."""
    size = windows_per_point(len(windows))
    with_utilisation = list(zip(windows, utilisations, strict=True))
    return tuple(
        _point(chunk, stretch)
        for stretch, group in groupby(with_utilisation, key=lambda pair: bisect_right(starts_s, pair[0].end_s))
        for chunk in _chunks(list(group), size)
    )


def utilisations(windows: Sequence[WindowSummary], slots: Sequence[int | None]) -> list[float | None]:
    """Return task time / (slots x time) of each window; None if the task time or the slots are unknown.

    The task time of a batch is known when the batch ends. It is spread evenly over the duration of the longest batch
    that ended in the window, because a batch may have begun in earlier windows.

    >>> window = WindowSummary(0.0, 2.0, None, None, None, 0, None, None, 6.0, 2, 1, 4.0, False, None, None)
    >>> before = window._replace(start_s=-2.0, end_s=0.0, busy_s=None, batches=0, batch_max_s=None)
    >>> utilisations([before, window], [2, 2])
    [0.75, 0.75]
    """
    if all(window.busy_s is None for window in windows):
        return [None] * len(windows)
    busy_s = [0.0] * len(windows)
    for last, window in enumerate(windows):
        if window.busy_s is None:
            continue
        spread_s = max(window.span_s, window.batch_max_s or 0.0)
        for number in range(last, -1, -1):
            covered_s = windows[number].end_s - max(windows[number].start_s, window.end_s - spread_s)
            if covered_s <= 0:
                break
            busy_s[number] += window.busy_s * min(1.0, covered_s / spread_s)
    return [
        None
        if not count or not window.span_s or (window.busy_s is None and window.batches)
        else min(1.0, busy_s[number] / (count * window.span_s))
        for number, (window, count) in enumerate(zip(windows, slots, strict=True))
    ]


def windows_per_point(windows: int) -> int:
    return max(1, math.ceil(windows / MAX_POINTS))


def share_within_target(
    met: Sequence[bool | None], waiting: Sequence[bool], lengths_s: Sequence[float]
) -> float | None:
    """Return the share of the time within the latency target; None if it is unknown.

    Args:
        met: Whether the rows that left in each window met the target; None if no row left.
        waiting: Whether rows were waiting at the end of each window. If rows wait and none leaves, the window has the
            result of the window in which they leave. Rows that still wait at the end have missed the target.
        lengths_s: Length of each window.

    >>> share_within_target([True, None, False, None], [True, True, True, False], [1.0, 1.0, 1.0, 1.0])
    0.3333333333333333
    """
    result, shares = False, []
    for is_met, is_waiting, length_s in zip(reversed(met), reversed(waiting), reversed(lengths_s), strict=True):
        result = result if is_met is None else is_met
        if is_met is not None or is_waiting:
            shares.append((result, length_s))
    return _mean(shares)


def totals(windows: Sequence[WindowSummary], utilisations: Sequence[float | None]) -> Totals:
    warm = [window for window in windows if not window.warm_up] or windows
    warm_s = sum(window.span_s for window in warm)
    warm_rows = _sum(window.rows for window in warm)
    observed_s = sum(window.span_s for window in windows)
    return Totals(
        windows=len(windows),
        observed_s=observed_s,
        warm_up_s=observed_s - warm_s,
        rows=_sum(window.rows for window in windows),
        rows_per_s=warm_rows / warm_s if warm_rows is not None and warm_s else None,
        peak_rows_per_s=_max(w.rows / w.span_s for w in warm if w.rows is not None and w.span_s),
        backlog_rows=windows[-1].backlog_rows if windows else None,
        peak_backlog_rows=_max(window.backlog_rows for window in warm),
        latency_mean_s=_mean((window.latency_mean_s, window.latency_rows) for window in warm),
        worst_p95_s=_max(window.latency_p95_s for window in warm),
        share_within_target=share_within_target(
            [window.meets_target for window in warm],
            [window.target_s is not None and bool(window.backlog_rows) for window in warm],
            [window.span_s for window in warm],
        ),
        utilisation=_mean(
            (share, window.span_s)
            for window, share in zip(windows, utilisations, strict=True)
            if not window.warm_up or warm is windows
        ),
        busy_s=_sum(window.busy_s for window in windows),
        used_slot_s=sum(window.used_slots * window.span_s for window in windows),
    )


def _point(chunk: Sequence[tuple[WindowSummary, float | None]], stretch: int) -> Point:
    windows = [window for window, _ in chunk]
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
        utilisation=_mean((share, window.span_s) for window, share in chunk),
        target_s=windows[-1].target_s,
        target_latency_s=_mean((window.target_latency_s, window.latency_rows) for window in windows),
        warm_up=all(window.warm_up for window in windows),
    )


def _chunks(windows: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
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
