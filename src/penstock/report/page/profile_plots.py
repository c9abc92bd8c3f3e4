"""Plots of a profile: box plots of the throughput by round, latency by round, and throughput by platform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.report.formatting import count, seconds
from penstock.report.page.axes import Axis, AxisTick, compact, count_axis, value_axis
from penstock.report.page.plots import HEIGHT, WIDTH, Plot, PlotLine, Tooltip
from penstock.report.profile_report import PlatformResult, ReportedRound

_BOX = 0.3  # half of the width of a box, as a share of the space of a round
_WHISKER = 1.5  # longest whisker, in interquartile ranges (Tukey)
_KEPT, _REVOKED = 2, 1  # colours
_MAX_TICKS = 20


def throughput_by_round(rounds: Sequence[ReportedRound]) -> Plot:
    """Return one box per round: quartiles, whiskers of at most 1.5 interquartile ranges, and outliers."""
    y = value_axis(max(max(row.samples, default=row.round.rows_per_s) for row in rounds), compact)
    lines = []
    for name, colour, is_kept in (("kept", _KEPT, True), ("revoked", _REVOKED, False)):
        chosen = [(number, row) for number, row in enumerate(rounds) if row.round.kept is is_kept]
        if not chosen:
            continue
        boxes = "".join(_box(number, len(rounds), row, y) for number, row in chosen)
        lines.append(PlotLine(name=name, colour=colour, path=boxes, style="box"))
        outliers = "".join(
            f"M{_n(_x(number, len(rounds)))} {_y(y, value)}h0" for number, row in chosen for value in _outliers(row)
        )
        if outliers:
            lines.append(PlotLine(name=f"{name}, outliers", colour=colour, path=outliers, style="dots"))
    best = max(rounds, key=lambda row: row.round.rows_per_s).round
    return Plot(
        title="Throughput by round, rows/s",
        summary=f"Box plots of {len(rounds)} rounds; the highest mean is {count(best.rows_per_s)} rows/s in round "
        f"{best.number}.",
        lines=tuple(lines),
        x_ticks=tuple(_round_ticks(len(rounds))),
        y_ticks=y.ticks,
        x_title="round",
        tooltips=tuple(
            _tooltip(
                number,
                len(rounds),
                f"round {row.round.number}: mean {count(row.round.rows_per_s)} rows/s "
                f"({count(row.round.low_rows_per_s)} to {count(row.round.high_rows_per_s)}), "
                f"{len(row.samples)} windows, {'kept' if row.round.kept else 'revoked'}",
            )
            for number, row in enumerate(rounds)
        ),
    )


def latency_by_round(rounds: Sequence[ReportedRound], target_s: float | None) -> Plot:
    """Return the mean latency of each round and the latency target."""
    latencies = [row.round.latency_s for row in rounds]
    y = value_axis(max([*latencies, target_s or 0.0]), lambda value: "0" if value == 0 else seconds(value))
    dots = "".join(f"M{_n(_x(number, len(rounds)))} {_y(y, value)}h0" for number, value in enumerate(latencies))
    lines = [PlotLine(name="mean latency", colour=0, path=dots, style="dots")]
    if target_s is not None:
        path = f"M0 {_y(y, target_s)}H{_n(WIDTH)}"
        lines.append(PlotLine(name=f"target {seconds(target_s)}", colour=1, path=path, style="target"))
    return Plot(
        title="Latency by round",
        summary=f"Mean latency of {len(rounds)} rounds, {seconds(min(latencies))} to {seconds(max(latencies))}.",
        lines=tuple(lines),
        x_ticks=tuple(_round_ticks(len(rounds))),
        y_ticks=y.ticks,
        x_title="round",
        tooltips=tuple(
            _tooltip(number, len(rounds), f"round {row.round.number}: {seconds(row.round.latency_s)}")
            for number, row in enumerate(rounds)
        ),
    )


def throughput_by_platform(results: Sequence[PlatformResult]) -> Plot:
    """Return the throughput of the best plan by the number of slots or executors, with its confidence interval."""
    machines = results[0].machines
    x = count_axis(max(result.count for result in results))
    y = value_axis(max(result.high_rows_per_s for result in results), compact)

    def at(result: PlatformResult, rate: float) -> str:
        return f"{_n(x.position(result.count) * WIDTH)} {_y(y, rate)}"

    through = "L".join(at(result, result.rows_per_s) for result in results)
    dots = "".join(f"M{at(result, result.rows_per_s)}h0" for result in results)
    intervals = "".join(f"M{at(result, result.low_rows_per_s)}V{_y(y, result.high_rows_per_s)}" for result in results)
    width = WIDTH / x.high
    return Plot(
        title=f"Throughput by {machines}, rows/s",
        summary="Best throughput: "
        + ", ".join(f"{count(result.rows_per_s)} rows/s on {result.count} {machines}" for result in results)
        + ".",
        lines=(
            PlotLine(name="best plan", colour=0, path=f"M{through}"),
            PlotLine(name="measured", colour=0, path=dots, style="dots"),
            PlotLine(name="95 % interval", colour=1, path=intervals),
        ),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title=machines,
        tooltips=tuple(
            Tooltip(
                x=x.position(result.count) * WIDTH - width / 2,
                width=width,
                text=f"{result.count} {machines}: {count(result.rows_per_s)} rows/s, {seconds(result.latency_s)}",
            )
            for result in results
        ),
    )


def box_values(samples: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Return the lower whisker, the quartiles and the upper whisker.

    >>> box_values([1.0, 2.0, 3.0, 4.0, 5.0, 100.0])
    (1.0, 2.25, 3.5, 4.75, 5.0)
    """
    low, middle, high = (float(value) for value in np.quantile(samples, [0.25, 0.5, 0.75]))
    reach = _WHISKER * (high - low)
    inside = [value for value in samples if low - reach <= value <= high + reach]
    return min(inside), low, middle, high, max(inside)


def _box(number: int, rounds: int, row: ReportedRound, y: Axis) -> str:
    """Return the box, the median and both whiskers of a round."""
    least, low, middle, high, most = box_values(row.samples or (row.round.rows_per_s,))
    centre, half = _x(number, rounds), _BOX * WIDTH / rounds
    left, right = _n(centre - half), _n(centre + half)
    box = f"M{left} {_y(y, low)}H{right}V{_y(y, high)}H{left}Z"
    median = f"M{left} {_y(y, middle)}H{right}"
    whiskers = f"M{_n(centre)} {_y(y, least)}V{_y(y, low)}M{_n(centre)} {_y(y, high)}V{_y(y, most)}"
    return box + median + whiskers


def _outliers(row: ReportedRound) -> list[float]:
    if not row.samples:
        return []
    least, _, _, _, most = box_values(row.samples)
    return [value for value in row.samples if not least <= value <= most]


def _round_ticks(rounds: int) -> Iterator[AxisTick]:
    step = -(-rounds // _MAX_TICKS)
    for number in range(0, rounds, step):
        yield AxisTick(position=_x(number, rounds) / WIDTH, text=str(number + 1))


def _tooltip(number: int, rounds: int, text: str) -> Tooltip:
    return Tooltip(x=number * WIDTH / rounds, width=WIDTH / rounds, text=text)


def _x(number: int, rounds: int) -> float:
    return (number + 0.5) * WIDTH / rounds


def _y(axis: Axis, value: float) -> str:
    return _n((1.0 - axis.position(value)) * HEIGHT)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
