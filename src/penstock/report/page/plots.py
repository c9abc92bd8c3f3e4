"""Plots as values: SVG paths in a box of 1000 by 100 units, which the page stretches.

Ticks and texts are HTML beside the SVG, so they keep their size on narrow screens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.report.costs import PlanPeriod
from penstock.report.formatting import count, percent, seconds
from penstock.report.history import Point
from penstock.report.mst_curve import MstCurve, MstPoint
from penstock.report.page.axes import Axis, AxisTick, Timeline, compact, count_axis, time_axis, value_axis
from penstock.report.page.marks import Mark
from penstock.store import LatencyTarget

WIDTH, HEIGHT = 1000.0, 100.0
COLOURS = 6  # the style sheet defines that many
_MAX_STEPS = 1000  # in a step line, one per unit of the box


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """`style` is line, area (filled to the x axis), band (filled between two curves), dots or target (dashed)."""

    name: str
    colour: int
    path: str
    style: str = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooltip:
    """A vertical strip of the plot with a text that appears while the pointer is on it."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """A shaded vertical strip of the plot."""

    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    title: str
    summary: str  # alternative text
    lines: tuple[PlotLine, ...]
    x_ticks: tuple[AxisTick, ...]
    y_ticks: tuple[AxisTick, ...]
    x_title: str
    tooltips: tuple[Tooltip, ...] = ()
    shades: tuple[Shade, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSeries:
    name: str
    value: Callable[[Point], float | None]
    style: str = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeries:
    """One value per interval."""

    name: str
    values: Sequence[float]
    style: str = "line"
    colour: int = 0


class TimePlots:
    """The plots of a run over time. Each method returns None if nothing of it was measured."""

    def __init__(self, points: Sequence[Point], timeline: Timeline, clock: Callable[[float], str]) -> None:
        self._points = points
        self._timeline = timeline
        self._clock = clock
        self._x = time_axis(timeline.length_s)
        self._shades = tuple(self._warm_ups())

    def throughput(self) -> Plot | None:
        series = (
            PointSeries(name="arriving", value=lambda point: point.arriving_rows_per_s, style="area"),
            PointSeries(name="processed", value=lambda point: point.processed_rows_per_s),
        )
        return self._plot("Throughput, rows/s", series, text=lambda number: f"{count(number)} rows/s", tick=compact)

    def backlog(self) -> Plot | None:
        series = (PointSeries(name="backlog", value=lambda point: point.backlog_rows),)
        return self._plot("Backlog, rows", series, text=lambda number: f"{count(number)} rows", tick=compact)

    def latency(self, target: LatencyTarget | None = None, *, is_estimated: bool = False) -> Plot | None:
        """Return the latency and its target; `target` is the latest one, points contain the one of their time."""
        series = [
            PointSeries(name="mean", value=lambda point: point.latency_mean_s),
            PointSeries(name="longest" if is_estimated else "p95", value=lambda point: point.latency_p95_s),
        ]
        if target is not None:
            if target.quantile not in (None, 0.95):
                series.append(PointSeries(name=target.statistic, value=lambda point: point.target_latency_s))
            name = f"target for the {target.statistic}"
            series.append(PointSeries(name=name, value=lambda point: point.target_s, style="target"))
        title = "Latency, estimated from the batches" if is_estimated else "Latency"
        return self._plot(title, series, text=seconds, tick=lambda value: "0" if value == 0 else seconds(value))

    def utilisation(self) -> Plot | None:
        series = (PointSeries(name="busy slots", value=lambda point: point.utilisation),)
        return self._plot("Utilisation of the slots", series, text=percent, tick=percent, at_least=1.0)

    def replicas(self, periods: Sequence[PlanPeriod]) -> Plot | None:
        """Return the replicas over time, or None if they never changed: the graph shows them then."""
        names = dict.fromkeys(name for period in periods for name in period.plan.replicas)
        varying = [name for name in names if len({period.plan.replicas.get(name) for period in periods}) > 1]
        if not varying or self._timeline.length_s <= 0:
            return None
        highest = max(period.plan.replicas.get(name, 0) for period in periods for name in varying)
        y = count_axis(highest)
        lines = []
        for number, name in enumerate(varying):
            steps: dict[int, tuple[float, float, str]] = {}  # by pixel: keep one of the changes at the same pixel
            for period in periods:
                if (replicas := period.plan.replicas.get(name)) is not None:
                    left = self._left(period.start_s)
                    steps[round(left)] = (left, self._left(period.end_s), _y(y, replicas))
            path = "".join(
                f"{f'M{_n(left)} ' if position == 0 else 'V'}{height}H{_n(right)}"
                for position, (left, right, height) in enumerate(steps.values())
            )
            lines.append(PlotLine(name=name, colour=number % COLOURS, path=path))
        return Plot(
            title="Replicas, by operator",
            summary=f"Replicas of {', '.join(varying)} over time, at most {highest}.",
            lines=tuple(lines),
            x_ticks=self._x.ticks,
            y_ticks=y.ticks,
            x_title="run time",
        )

    def _plot(
        self,
        title: str,
        series: Iterable[PointSeries],
        *,
        text: Callable[[float], str],
        tick: Callable[[float], str],
        at_least: float = 0.0,
    ) -> Plot | None:
        """Return a plot over time; `at_least` is the lowest end of the y axis."""
        known = [line for line in series if any(line.value(point) is not None for point in self._points)]
        if not known:
            return None
        highest = max(line.value(point) or 0.0 for line in known for point in self._points)
        y = value_axis(max(highest, at_least), tick)
        tooltips = []
        for point in self._points:
            left, right = self._left(point.start_s), self._left(point.end_s)
            values = [f"{line.name} {text(number)}" for line in known if (number := line.value(point)) is not None]
            tooltips.append(
                Tooltip(
                    x=left,
                    width=max(right - left, 0.1),
                    text=f"{self._clock(point.start_s)}: {', '.join(values) or '-'}",
                )
            )
        return Plot(
            title=title,
            summary=f"{title}: {' and '.join(line.name for line in known)}, at most {text(highest)}.",
            lines=tuple(
                PlotLine(name=line.name, colour=number, path=self._path(line, y), style=line.style)
                for number, line in enumerate(known)
            ),
            x_ticks=self._x.ticks,
            y_ticks=y.ticks,
            x_title="run time",
            tooltips=tuple(tooltips),
            shades=self._shades,
        )

    def _warm_ups(self) -> Iterator[Shade]:
        """Yield the warm-up after each start."""
        for (is_warm_up, _), group in groupby(self._points, key=lambda point: (point.warm_up, point.stretch)):
            if is_warm_up:
                shaded = list(group)
                left, right = self._left(shaded[0].start_s), self._left(shaded[-1].end_s)
                yield Shade(x=left, width=max(right - left, 0.1))

    def _path(self, series: PointSeries, y: Axis) -> str:
        """Return a path through the middles of the points, interrupted at unknown values and between two starts."""
        pieces: list[list[tuple[Point, float]]] = [[]]
        stretch = None
        for point in self._points:
            number = series.value(point)
            if number is None or point.stretch != stretch:
                pieces.append([])
                stretch = point.stretch
            if number is not None:
                pieces[-1].append((point, number))
        path = ""
        for piece in filter(None, pieces):
            places = [((self._left(p.start_s) + self._left(p.end_s)) / 2, number) for p, number in piece]
            if len(piece) == 1:  # Draw a single point as a line as long as its window.
                point, number = piece[0]
                places = [(self._left(point.start_s), number), (self._left(point.end_s), number)]
            through = "L".join(f"{_n(left)} {_y(y, number)}" for left, number in places)
            if series.style == "area":
                path += f"M{_n(places[0][0])} {_n(HEIGHT)}L{through}V{_n(HEIGHT)}Z"
            else:
                path += f"M{through}"
        return path

    def _left(self, at_s: float) -> float:
        return self._x.position(self._timeline.run_time_s(at_s)) * WIDTH


def mst_plot(curve: MstCurve) -> Plot:
    """Draw the measurements as dots, the fitted curve, and the interval that contains new measurements."""
    x = count_axis(max([point.executors for point in curve.points] + [point.executors for point in curve.fitted]))
    rates = [point.rows_per_s for point in curve.points] + [point.rows_per_s for point in curve.fitted]
    # Limit the height: a wide interval must not flatten the curve.
    y = value_axis(min(max([point.high for point in curve.fitted] + rates), 1.7 * max(rates)), compact)

    def at(executors: float, rate: float) -> str:
        return f"{_n(x.position(executors) * WIDTH)} {_y(y, rate)}"

    def dots(points: Iterable[MstPoint]) -> str:
        return "".join(f"M{at(point.executors, point.rows_per_s)}h0" for point in points)

    lines = []
    if curve.fitted:
        level = curve.fitted[0].level
        upper = "L".join(at(point.executors, point.high) for point in curve.fitted)
        lower = "L".join(at(point.executors, point.low) for point in reversed(curve.fitted))
        lines.append(
            PlotLine(name=f"{level:.0%} of new measurements", colour=0, path=f"M{upper}L{lower}Z", style="band")
        )
        middle = "L".join(at(point.executors, point.rows_per_s) for point in curve.fitted)
        lines.append(PlotLine(name=f"fitted curve ({curve.model})", colour=0, path=f"M{middle}"))
    fitted_to = [point for point in curve.points if not point.is_validation]
    validation = [point for point in curve.points if point.is_validation]
    lines.append(PlotLine(name="measured", colour=1, path=dots(fitted_to), style="dots"))
    if validation:
        lines.append(PlotLine(name="measured, used to select the model", colour=2, path=dots(validation), style="dots"))
    best = max(curve.points, key=lambda point: point.rows_per_s)
    step = WIDTH / x.high
    return Plot(
        title=f"{curve.app}, {curve.unit}",
        summary=f"{len(curve.points)} measurements, at most {count(best.rows_per_s)} {curve.unit} on "
        f"{best.executors} {curve.machines}.",
        lines=tuple(lines),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title=curve.machines,
        tooltips=tuple(
            Tooltip(
                x=(point.executors - 0.5) * step,
                width=step,
                text=f"{point.executors} {curve.machines}: {count(point.rows_per_s)} {curve.unit} "
                f"({count(point.low)} to {count(point.high)})",
            )
            for point in curve.fitted
        ),
    )


def step_plot(title: str, series: Sequence[StepSeries], *, interval_s: float, split_at: int) -> Plot:
    """Draw values that are constant during an interval, with a mark before interval `split_at`.

    Several intervals share a step if there are more than a screen can show; the step has the highest of their values.
    """
    intervals = len(series[0].values)
    x = time_axis(intervals * interval_s)
    highest = max(max(line.values) for line in series)
    y = value_axis(float(highest), compact)
    per_step = -(-intervals // _MAX_STEPS)
    lines = []
    for line in series:
        path, last_height = "", ""
        for first in range(0, intervals, per_step):
            left = _n(first / intervals * WIDTH)
            height = _y(y, float(max(line.values[first : first + per_step])))
            if height != last_height:
                path += f"M{left} {height}" if not path else f"H{left}V{height}"
                last_height = height
        path += f"H{_n(WIDTH)}"
        if line.style == "area":
            path += f"V{_n(HEIGHT)}H0Z"
        lines.append(PlotLine(name=line.name, colour=line.colour, path=path, style=line.style))
    return Plot(
        title=title,
        summary=f"{title} over time: {', '.join(line.name for line in series)}, at most {count(float(highest))}.",
        lines=tuple(lines),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title="time",
        marks=(Mark(position=split_at / intervals, kind="split"),),
    )


def _y(axis: Axis, value: float) -> str:
    return _n((1.0 - axis.position(value)) * HEIGHT)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
