"""Plots as values: paths in a box of 1000 by 100, which the page stretches, with ticks and texts beside it.

Texts are HTML and not part of the picture, so that they keep their size however narrow the screen is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.report.costs import InForce
from penstock.report.history import Point
from penstock.report.mst_curve import MstCurve
from penstock.report.page.axes import Axis, Tick, Timeline, compact, count_axis, time_axis, value_axis
from penstock.report.table import count, seconds

WIDTH, HEIGHT = 1000.0, 100.0
COLOURS = 6  # that the style knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`colour` is a number of the style's; a `band` is filled, `dots` are points without a line."""

    name: str
    colour: int
    path: str
    drawn: str = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A part of the plot's width that says its numbers when it is pointed at."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    title: str
    summary: str  # for whom does not see it
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_title: str
    spots: tuple[Spot, ...] = ()


Value = Callable[[Point], float | None]


def throughput(points: Sequence[Point], line: Timeline, clock: Callable[[float], str]) -> Plot | None:
    return _over_time(
        "Throughput, rows/s",
        points,
        line,
        (
            ("arriving", lambda one: one.arriving_rows_per_s, "area"),  # or one line would hide the other
            ("processed", lambda one: one.processed_rows_per_s, "line"),
        ),
        say=lambda number: f"{count(number)} rows/s",
        tick=compact,
        clock=clock,
    )


def backlog(points: Sequence[Point], line: Timeline, clock: Callable[[float], str]) -> Plot | None:
    return _over_time(
        "Backlog, rows that wait",
        points,
        line,
        (("waiting", lambda one: one.backlog_rows, "line"),),
        say=lambda number: f"{count(number)} rows",
        tick=compact,
        clock=clock,
    )


def latency(points: Sequence[Point], line: Timeline, clock: Callable[[float], str]) -> Plot | None:
    return _over_time(
        "Latency, from append to result",
        points,
        line,
        (("mean", lambda one: one.latency_mean_s, "line"), ("p95", lambda one: one.latency_p95_s, "line")),
        say=seconds,
        tick=lambda number: "0" if number == 0 else seconds(number),
        clock=clock,
    )


def replicas(plans: Sequence[InForce], line: Timeline) -> Plot | None:
    """None where they never changed: the graph says it all then."""
    regions = list(dict.fromkeys(name for one in plans for name in one.plan.replicas))
    varying = [name for name in regions if len({one.plan.replicas.get(name) for one in plans}) > 1]
    if not varying or line.length_s <= 0:
        return None
    x = time_axis(line.length_s)
    y = count_axis(max(one.plan.replicas.get(name, 0) for one in plans for name in varying))
    lines = []
    for number, name in enumerate(varying):
        steps: dict[int, tuple[float, float, str]] = {}  # by pixel: changes that cannot be told apart cost nothing
        for one in plans:
            if (many := one.plan.replicas.get(name)) is not None:
                left, right = (x.share(line.ran_s(moment)) * WIDTH for moment in (one.start_s, one.end_s))
                steps[round(left)] = (left, right, _y(y, many))
        path = "".join(
            f"{f'M{_n(left)} ' if position == 0 else 'V'}{height}H{_n(right)}"
            for position, (left, right, height) in enumerate(steps.values())
        )
        lines.append(Line(name=name, colour=number % COLOURS, path=path))
    high = max(one.plan.replicas.get(name, 0) for one in plans for name in varying)
    return Plot(
        title="Replicas, by operator",
        summary=f"Replicas of {', '.join(varying)} over time, at most {high}.",
        lines=tuple(lines),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title="time that it ran",
    )


def mst(curve: MstCurve) -> Plot:
    """Trials as dots, the fitted curve, and the interval in which a new trial falls."""
    counts = [one.executors for one in curve.points] + [one.executors for one in curve.fitted]
    measured = [one.rows_per_s for one in curve.points] + [one.rows_per_s for one in curve.fitted]
    x = count_axis(max(counts, default=1))
    # A heavy tail of the interval must not flatten the curve that it belongs to.
    y = value_axis(min(max([one.high for one in curve.fitted] + measured), 1.7 * max(measured)), compact)

    def at(executors: float, rate: float) -> str:
        return f"{_n(x.share(executors) * WIDTH)} {_y(y, rate)}"

    lines = []
    if curve.fitted:
        level = curve.fitted[0].level
        upper = "L".join(at(one.executors, one.high) for one in curve.fitted)
        lower = "L".join(at(one.executors, one.low) for one in reversed(curve.fitted))
        lines.append(Line(name=f"{level:.0%} of new trials", colour=0, path=f"M{upper}L{lower}Z", drawn="band"))
        middle = "L".join(at(one.executors, one.rows_per_s) for one in curve.fitted)
        lines.append(Line(name=f"fitted, {curve.model}", colour=0, path=f"M{middle}"))
    dots = "".join(f"M{at(one.executors, one.rows_per_s)}h0" for one in curve.points)
    lines.append(Line(name="trials", colour=1, path=dots, drawn="dots"))
    best = max(curve.points, key=lambda one: one.rows_per_s)
    step = WIDTH / x.high
    return Plot(
        title=f"{curve.app}, rows/s",
        summary=f"{len(curve.points)} trials, at most {count(best.rows_per_s)} rows/s on {best.executors} executors.",
        lines=tuple(lines),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title="executors",
        spots=tuple(
            Spot(
                x=(one.executors - 0.5) * step,
                width=step,
                text=f"{one.executors} executors: {count(one.rows_per_s)} rows/s "
                f"({count(one.low)} to {count(one.high)})",
            )
            for one in curve.fitted
        ),
    )


def _over_time(
    title: str,
    points: Sequence[Point],
    line: Timeline,
    series: Iterable[tuple[str, Value, str]],
    *,
    say: Callable[[float], str],
    tick: Callable[[float], str],
    clock: Callable[[float], str],
) -> Plot | None:
    """None where nothing of it is known."""
    known = [one for one in series if any(one[1](point) is not None for point in points)]
    if not known:
        return None
    highest = max(value(one) or 0.0 for _, value, _ in known for one in points)
    x, y = time_axis(line.length_s), value_axis(highest, tick)
    spots = []
    for one in points:
        left, right = (x.share(line.ran_s(moment)) * WIDTH for moment in (one.start_s, one.end_s))
        said = [f"{name} {say(number)}" for name, value, _ in known if (number := value(one)) is not None]
        spots.append(Spot(x=left, width=max(right - left, 0.1), text=f"{clock(one.start_s)}: {', '.join(said) or '-'}"))
    return Plot(
        title=title,
        summary=f"{title}: {' and '.join(name for name, _, _ in known)}, at most {say(highest)}.",
        lines=tuple(
            Line(name=name, colour=number, path=_path(points, value, line, x, y, filled=drawn == "area"), drawn=drawn)
            for number, (name, value, drawn) in enumerate(known)
        ),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title="time that it ran",
        spots=tuple(spots),
    )


def _path(points: Sequence[Point], value: Value, line: Timeline, x: Axis, y: Axis, *, filled: bool) -> str:
    """Through the middles of the points; broken where one is unknown and between two starts."""
    pieces: list[list[tuple[Point, float]]] = [[]]
    stretch = None
    for one in points:
        number = value(one)
        if number is None or one.stretch != stretch:
            pieces.append([])
            stretch = one.stretch
        if number is not None:
            pieces[-1].append((one, number))

    def at(time_s: float) -> float:
        return x.share(line.ran_s(time_s)) * WIDTH

    path = ""
    for piece in filter(None, pieces):
        places = [((at(one.start_s) + at(one.end_s)) / 2, number) for one, number in piece]
        if len(piece) == 1:  # has no other to be joined to: as long as it lasted
            one, number = piece[0]
            places = [(at(one.start_s), number), (at(one.end_s), number)]
        through = "L".join(f"{_n(left)} {_y(y, number)}" for left, number in places)
        path += f"M{_n(places[0][0])} {_n(HEIGHT)}L{through}V{_n(HEIGHT)}Z" if filled else f"M{through}"
    return path


def _y(axis: Axis, value: float) -> str:
    return _n((1.0 - axis.share(value)) * HEIGHT)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
