"""Render reports as HTML. The template engine escapes everything that comes from a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from penstock.dataflow.errors import PenstockError
from penstock.planning.elastic_comparison import ElasticComparison
from penstock.planning.trace import Trace
from penstock.report.call_remarks import call_remark
from penstock.report.decisions import decision_cells
from penstock.report.formatting import count, duration, percent, seconds, shortened
from penstock.report.mst_curve import MstCurve
from penstock.report.page.axes import Timeline
from penstock.report.page.graph import layout
from penstock.report.page.marks import distinct_lines, labels, marks
from penstock.report.page.plots import Plot, StepSeries, TimePlots, mst_plot, step_plot
from penstock.report.page.profile_plots import latency_by_round, throughput_by_platform, throughput_by_round
from penstock.report.page.thread_plots import curve_plots
from penstock.report.profile_graph import profile_operators
from penstock.report.profile_report import PlatformResult, ProfileReport
from penstock.report.run_report import RunReport
from penstock.report.watched import capacity_note, capacity_text
from penstock.study.curves.measured_curve import MeasuredCurve

_FOLDER = Path(__file__).parent
_MAX_LAYERS_SIDE_BY_SIDE = 6
_MAX_TEXT_LENGTH = 1000
_MAX_TRACEBACK_LENGTH = 4000


def run_page(report: RunReport) -> str:
    """Return the page of a run or study."""
    if report.profile is not None:
        return _profile_page(report, report.profile)
    timeline = Timeline(report.points)
    clock = _Clock(report)
    plots = TimePlots(report.points, timeline, clock.time)
    target = report.run.latency_target if report.run else None
    over_time = [
        plots.throughput(),
        plots.backlog(),
        plots.latency(target, is_estimated=report.watched is not None),
        plots.utilisation(),
        plots.replicas(report.plans),
    ]
    all_marks = marks(report, timeline)
    graph = layout(report.operators)
    environment = page_environment()
    environment.filters |= {"clock": clock.time, "iso": clock.iso, "full": clock.full}
    return environment.get_template("run.html.j2").render(
        report=report,
        title=report.run.dataflow if report.run else Path(report.directory).name or report.directory,
        graph=graph,
        across=graph.layers <= _MAX_LAYERS_SIDE_BY_SIDE,
        plots=[plot for plot in over_time if plot is not None],
        mst_plots=[mst_plot(curve) for curve in report.mst if curve.points],
        marks=distinct_lines(all_marks),
        labels=labels(all_marks),
        has_warm_up=any(point.warm_up for point in report.points),
        call_remarks=[call_remark(row.operator, row.calls) for row in report.operators if row.calls],
        shared_costs=list(
            {row.shared_cost.operators: row.shared_cost for row in report.operators if row.shared_cost}.values()
        ),
        capacity=None if report.watched is None else (capacity_text(report.watched), capacity_note(report.watched)),
        is_simulation=report.run is not None and report.run.kind == "simulation",
    )


def _profile_page(report: RunReport, profile: ProfileReport) -> str:
    graph = layout(profile_operators(profile))
    clock = _Clock(report)
    environment = page_environment()
    environment.filters |= {"clock": clock.time, "iso": clock.iso, "full": clock.full}
    plots = []
    if profile.rounds:
        plots = [throughput_by_round(profile.rounds), latency_by_round(profile.rounds, profile.latency_target_s)]
    return environment.get_template("profile.html.j2").render(
        report=report,
        title=report.run.dataflow if report.run else Path(report.directory).name or report.directory,
        graph=graph,
        across=graph.layers <= _MAX_LAYERS_SIDE_BY_SIDE,
        operators={operator.operator: operator for operator in profile.operators},
        plots=plots,
        platform_plot=throughput_by_platform(profile.platforms) if profile.platforms else None,
        mst_plots=[mst_plot(curve) for curve in report.mst if curve.points],
    )


def mst_page(curves: Sequence[MstCurve]) -> str:
    """Return a page with one plot per curve."""
    return _plots_page("Maximum sustainable throughput", [mst_plot(curve) for curve in curves])


def platforms_page(dataflow: str, results: Sequence[PlatformResult]) -> str:
    """Return a page with the best throughput by slots or executors, and its confidence intervals."""
    return _plots_page(f"{dataflow}: performance against resources", [throughput_by_platform(results)])


def curves_page(curves: Sequence[MeasuredCurve]) -> str:
    """Return a page with the peak rate, CPU and memory of each operator by number of threads."""
    return _plots_page("Performance curves", [plot for curve in curves for plot in curve_plots(curve)])


def elastic_page(trace: Trace, comparison: ElasticComparison) -> str:
    """Return a page with the load, the capacity and the VMs of the paper's best policy and of the careful policy."""
    compared = list(zip(comparison.schedules[-2:], comparison.outcomes[-2:], (1, 2), strict=True))
    capacity = [
        StepSeries(
            name=f"capacity: {schedule.policy}", values=comparison.truth[schedule.vms - 1].tolist(), colour=colour
        )
        for schedule, _, colour in compared
    ]
    vms = [
        StepSeries(
            name=f"{schedule.policy}: {outcome.cost_per_h:.3f}/h, {outcome.violations:.2%} violations",
            values=schedule.vms.tolist(),
            colour=colour,
        )
        for schedule, outcome, colour in compared
    ]
    load = StepSeries(name="load", values=trace.rates, style="area", colour=0)
    plots = [
        step_plot("Load and capacity", [load, *capacity], interval_s=trace.interval_s, split_at=comparison.judged_from),
        step_plot("VMs", vms, interval_s=trace.interval_s, split_at=comparison.judged_from),
    ]
    note = "Policy parameters are selected on the load before the dashed line. Outcomes refer to the load after it."
    return _plots_page(f"{comparison.app}: elastic schedules", plots, note=note)


def write_page(path: Path, text: str) -> None:
    """Write a page. Replace the file in one step, so that a reader sees the old or the new page."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PenstockError(f"Cannot write '{path}': {error.strerror}. Choose another path.") from None


def _plots_page(title: str, plots: Sequence[Plot], *, note: str = "") -> str:
    return page_environment().get_template("plots.html.j2").render(title=title, plots=plots, note=note)


def page_environment() -> Environment:
    """Return the template engine of all pages."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["style"] = Markup((_FOLDER / "style.css").read_text())  # part of the package, so not escaped
    environment.globals["version"] = version("penstock")
    environment.filters |= {
        "count": count,
        "seconds": seconds,
        "duration": duration,
        "percent": percent,
        "change": lambda share: f"{round(share * 100, 1) + 0.0:+.1f} %",  # adding 0 removes the sign of -0.0
        "short": lambda text: shortened(text, _MAX_TEXT_LENGTH),
        "trace": lambda text: shortened(text, _MAX_TRACEBACK_LENGTH),
        "arrows": lambda text: text.replace("->", "→"),
        "cells": decision_cells,
        "money": lambda amount: f"{amount:,.4g}" if amount < 100 else f"{amount:,.0f}",
    }
    return environment


class _Clock:
    """Local times, with the date if the run spans several days."""

    def __init__(self, report: RunReport) -> None:
        times_s = [*report.starts, *(point.end_s for point in report.points[-1:])]
        self._is_one_day = len({self._local(at_s).date() for at_s in times_s}) <= 1

    def time(self, at_s: float) -> str:
        return f"{self._local(at_s):{'%H:%M:%S' if self._is_one_day else '%d %b %H:%M:%S'}}"

    def iso(self, at_s: float) -> str:
        return self._local(at_s).isoformat(timespec="seconds")

    def full(self, at_s: float) -> str:
        return f"{self._local(at_s):%Y-%m-%d %H:%M:%S %Z}"

    @staticmethod
    def _local(at_s: float) -> datetime:
        return datetime.fromtimestamp(at_s).astimezone()
