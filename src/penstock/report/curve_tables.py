"""Measured performance curves as tables, and the progress of their study as lines."""

from __future__ import annotations

from rich import box
from rich.table import Table

from penstock.report.formatting import UNKNOWN, seconds
from penstock.study.curves.measured_curve import MeasuredCurve
from penstock.study.curves.study import CurveProgress


def curve_table(curve: MeasuredCurve) -> Table:
    """Return the peak rates of an operator, one row per number of threads."""
    table = Table(
        title=f"{curve.operator} ({curve.dataflow}, function {curve.function})",
        title_justify="left",
        caption=curve.ended or "incomplete: the same command continues",
        caption_justify="left",
        box=box.HORIZONTALS,
        pad_edge=False,
    )
    for heading in ("threads", "peak rows/s", "not sustained", "latency", "CPU %", "memory %", "trials"):
        table.add_column(heading, justify="right", no_wrap=True)
    for peak in curve.peaks:
        trials = sum(trial.threads == peak.threads for trial in curve.trials)
        table.add_row(
            str(peak.threads),
            f"{peak.rows_per_s:.4g}",
            UNKNOWN if peak.unstable_rows_per_s is None else f"{peak.unstable_rows_per_s:.4g}",
            seconds(peak.latency_s),
            _with_interval(peak.cpu, peak.cpu_interval),
            _with_interval(peak.memory, peak.memory_interval),
            str(trials),
        )
    return table


def _with_interval(percent: float, interval: tuple[float, float] | None) -> str:
    """
    >>> _with_interval(12.34, (10.0, 14.68)), _with_interval(12.34, None)
    ('12.3 (10.0 to 14.7)', '12.3')
    """
    return f"{percent:.1f}" + (f" ({interval[0]:.1f} to {interval[1]:.1f})" if interval is not None else "")


def progress_line(progress: CurveProgress) -> str:
    """Return the last trial and the next one in one line."""
    curve = progress.curve
    text = f"{curve.operator}: {progress.threads} threads at {progress.rows_per_s:.4g} rows/s"
    if curve.trials:
        last = curve.trials[-1]
        result = "stable" if last.is_stable else f"unstable ({last.reason})"
        text = f"{curve.operator}: {last.threads} threads at {last.rows_per_s:.4g} rows/s: {result}. Next: {text}"
    if progress.remaining_s is not None:
        text += f"; at most {seconds(progress.remaining_s)} left"
    return text
