"""From a report to its page. Everything that comes from a run is escaped by the template engine, whatever it says."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from penstock.report.decisions import cells
from penstock.report.page import plots
from penstock.report.page.axes import Timeline
from penstock.report.page.graph import laid_out
from penstock.report.page.marks import apart, labelled, marks
from penstock.report.record import Report
from penstock.report.table import UNKNOWN, count, seconds

_HERE = Path(__file__).parent
_MOST_LAYERS_ACROSS = 6  # more operators in a row do not fit beside each other
_LONGEST_TEXT = 1000
_LONGEST_TRACE = 4000


def rendered(report: Report) -> str:
    line = Timeline(report.points)
    clock = _Clock(report)
    over_time = [
        plots.throughput(report.points, line, clock.time),
        plots.backlog(report.points, line, clock.time),
        plots.latency(report.points, line, clock.time),
        plots.replicas(report.plans, line),
    ]
    found = marks(report, line)
    graph = laid_out(report.operators)
    return (
        _environment(clock)
        .get_template("page.html.j2")
        .render(
            report=report,
            title=report.run.dataflow if report.run else Path(report.directory).name or report.directory,
            style=Markup((_HERE / "style.css").read_text()),  # ours, not a run's
            version=version("penstock"),
            graph=graph,
            across=graph.layers <= _MOST_LAYERS_ACROSS,
            plots=[one for one in over_time if one is not None],
            mst_plots=[plots.mst(one) for one in report.mst if one.points],
            marks=apart(found),
            labels=labelled(found),
            simulated=report.run is not None and report.run.kind == "simulation",
        )
    )


def _environment(clock: _Clock) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "count": count,
        "seconds": seconds,
        "duration": duration,
        "clock": clock.time,
        "iso": clock.iso,
        "full": clock.full,
        "share": share,
        "short": lambda text: shortened(text, _LONGEST_TEXT),
        "trace": lambda text: shortened(text, _LONGEST_TRACE),
        "arrows": lambda text: text.replace("->", "→"),
        "cells": cells,
        "money": lambda amount: f"{amount:,.4g}" if amount < 100 else f"{amount:,.0f}",
    }
    return environment


class _Clock:
    """Times of the day where the run is of one day, with the date where it is not."""

    def __init__(self, report: Report) -> None:
        times = [*report.starts, *(one.end_s for one in report.points[-1:])]
        self._one_day = len({self._local(one).date() for one in times}) <= 1

    def time(self, at_s: float) -> str:
        return f"{self._local(at_s):{'%H:%M:%S' if self._one_day else '%d %b %H:%M:%S'}}"

    def iso(self, at_s: float) -> str:
        return self._local(at_s).isoformat(timespec="seconds")

    def full(self, at_s: float) -> str:
        return f"{self._local(at_s):%Y-%m-%d %H:%M:%S %Z}"

    @staticmethod
    def _local(at_s: float) -> datetime:
        return datetime.fromtimestamp(at_s).astimezone()


def duration(time_s: float | None) -> str:
    """
    >>> duration(None), duration(0.4), duration(75.2), duration(3600.0), duration(93784.0)
    ('-', '0.4 s', '1 min 15 s', '1 h', '1 d 2 h')
    """
    if time_s is None:
        return UNKNOWN
    if time_s < 10:
        return f"{time_s:.2g} s"
    left, parts = round(time_s), []
    for unit, in_s in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= in_s:
            parts.append(f"{left // in_s} {unit}")
            left %= in_s
        elif parts:
            break
    return " ".join(parts[:2])


def share(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.0%}"


def shortened(text: str, most: int) -> str:
    """The end of a long text says more than its middle.

    >>> shortened("abcdefghij", 6), shortened("abc", 6)
    ('abc … hij', 'abc')
    """
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"
