"""Plots of measured curves: peak rate, CPU and memory of one slot by number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.report.formatting import count
from penstock.report.page.axes import compact, count_axis, value_axis
from penstock.report.page.plots import HEIGHT, WIDTH, Plot, PlotLine, Tooltip
from penstock.study.curves.measured_curve import MeasuredCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadValue:
    """A value for a number of threads, and the interval that contains it; None: it is not known."""

    threads: int
    value: float
    interval: tuple[float, float] | None


def curve_plots(curve: MeasuredCurve) -> Iterator[Plot]:
    """Yield the plots of one operator. The peak rate is between the highest stable and the lowest unstable rate."""
    rates, cpu, memory = [], [], []
    for peak in curve.peaks:
        above = peak.unstable_rows_per_s
        between = None if above is None else (peak.rows_per_s, above)
        rates.append(ThreadValue(threads=peak.threads, value=peak.rows_per_s, interval=between))
        cpu.append(ThreadValue(threads=peak.threads, value=peak.cpu, interval=peak.cpu_interval))
        memory.append(ThreadValue(threads=peak.threads, value=peak.memory, interval=peak.memory_interval))
    if curve.peaks:
        yield thread_plot(f"{curve.operator}: peak rate", "rows/s", rates)
        yield thread_plot(f"{curve.operator}: CPU at the peak", "% of the slot", cpu)
        yield thread_plot(f"{curve.operator}: memory at the peak", "% of the slot", memory)


def thread_plot(title: str, unit: str, values: list[ThreadValue]) -> Plot:
    """Draw values by number of threads as dots with a line through them, and their intervals as vertical lines."""
    x = count_axis(max(value.threads for value in values))
    ends = [end for value in values for end in (value.interval or ())]
    y = value_axis(max([value.value for value in values] + ends), compact)

    def left(threads: float) -> str:
        return f"{x.position(threads) * WIDTH:.2f}"

    def height(value: float) -> str:
        return f"{(1.0 - y.position(value)) * HEIGHT:.2f}"

    lines = [
        PlotLine(
            name="mean" if unit.startswith("%") else "highest stable rate",
            colour=1,
            path="M" + "L".join(f"{left(value.threads)} {height(value.value)}" for value in values),
        )
    ]
    bars = [(value.threads, *value.interval) for value in values if value.interval is not None]
    if bars:
        lines.append(
            PlotLine(
                name="95 % interval" if unit.startswith("%") else "up to the lowest unstable rate",
                colour=0,
                path="".join(f"M{left(threads)} {height(low)}V{height(high)}" for threads, low, high in bars),
            )
        )
    step = WIDTH / x.high
    best = max(values, key=lambda value: value.value)
    return Plot(
        title=f"{title}, {unit}",
        summary=f"{title}, {len(values)} numbers of threads, at most {count(best.value)} {unit} with {best.threads}.",
        lines=tuple(lines),
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        x_title="threads",
        tooltips=tuple(
            Tooltip(x=max(0.0, (value.threads - 0.5) * step), width=step, text=_text(value, unit)) for value in values
        ),
    )


def _text(value: ThreadValue, unit: str) -> str:
    interval = "" if value.interval is None else f" ({count(value.interval[0])} to {count(value.interval[1])})"
    return f"{value.threads} threads: {count(value.value)} {unit}{interval}"
