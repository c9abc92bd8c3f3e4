"""External rows a second that a window says a pipeline takes, when there is always something to take."""

from __future__ import annotations

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.models.network.traffic import Stream, solve_traffic
from penstock.models.queueing.errors import UnstableError


def sustained(flow: Dataflow, window: Window, before: Window | None) -> float | None:
    """The least of what its pipelines take, each in rows from outside; None where windows do not say.

    In micro-batches rows are counted when a batch is committed, and a window holds two batches or three by chance; so
    rows go by the time of the batches that had them, which with a backlog follow each other without a gap. One that
    made no batch in this window may be the slowest of all. Without batches a row may be read and still wait at its
    source: what came to wait there since the window before was not taken.
    """
    shares = _shares(flow, window)
    if shares is None:
        return None
    found = []
    for pipeline in window.pipelines:
        share = shares[pipeline.pipeline]
        if share == 0 or not (pipeline.rows_in or pipeline.backlog_rows):
            continue
        rows_per_s = _taken(flow, pipeline, window, before)
        if rows_per_s is None:
            return None
        found.append(rows_per_s / share)
    return min(found, default=None)


def _taken(flow: Dataflow, pipeline: PipelineWindow, window: Window, before: Window | None) -> float | None:
    """Rows a second into a pipeline."""
    if pipeline.batches and pipeline.batch_s:
        return pipeline.rows_in / (pipeline.batches * pipeline.batch_s)
    sources = [name for name in pipeline.operators if flow[name].kind is Kind.SOURCE]
    waited = None if before is None else _backlog(before, sources)
    waits = _backlog(window, sources)
    span_s = window.end_s - window.start_s
    if waited is None or waits is None or span_s <= 0:
        return None
    taken = pipeline.rows_in - (waits - waited)
    return taken / span_s if taken > 0 else None


def _backlog(window: Window, operators: list[str]) -> int | None:
    seen = _seen(window)
    rows = [seen[name].backlog_rows if name in seen else None for name in operators]
    return None if None in rows else sum(one for one in rows if one is not None)


def _shares(flow: Dataflow, window: Window) -> dict[str, float] | None:
    """Rows that come to each pipeline for each row from outside, by the selectivities since the beginning.

    Not by the rows themselves: those that wait between two pipelines have come out of one and not yet to the other.
    """
    seen = _seen(window)
    sources = {one.name for one in flow.operators if one.kind is Kind.SOURCE}
    read = {name: seen[name].rows_in_total if name in seen else None for name in sources}
    external = sum(rows or 0 for rows in read.values())
    if None in read.values() or external <= 0:
        return None
    gains = {one.name: _gain(seen.get(one.name)) for one in flow.operators if one.kind is not Kind.SOURCE}
    stations = list(gains)
    streams = [
        Stream(source=None, target=name, gain=(read[before] or 0) / external)
        if before in sources
        else Stream(source=before, target=name, gain=gains[before] or 0.0)
        for name in stations
        for before in flow[name].inputs
    ]
    try:
        visits = solve_traffic(stations, streams, 1.0).arrival_per_s
    except UnstableError:  # a loop that multiplies rows
        return None
    # Behind an operator that rows should come to and have not come to, nothing is known.
    if any(visits[name] > 0 and gains[name] is None for name in stations if flow[name].kind is not Kind.SINK):
        return None

    out = {name: (rows or 0) / external for name, rows in read.items()}
    out |= {name: visits[name] * (gains[name] or 0.0) for name in stations}

    def share(pipeline: PipelineWindow) -> float:
        read_here = [name for name in pipeline.operators if name in sources]
        cuts = [one for name in pipeline.operators for one in flow[name].inputs if one not in pipeline.operators]
        return sum(out[name] for name in (*read_here, *cuts))

    return {one.pipeline: share(one) for one in window.pipelines}


def _gain(one: OperatorWindow | None) -> float | None:
    if one is None or not one.rows_in_total or one.rows_out_total is None:
        return None
    return one.rows_out_total / one.rows_in_total


def _seen(window: Window) -> dict[str, OperatorWindow]:
    return {one.operator: one for one in window.operators}


def waiting(flow: Dataflow, window: Window) -> int:
    """Rows that wait at the sources."""
    sources = {one.name for one in flow.operators if one.kind is Kind.SOURCE}
    return sum(one.backlog_rows or 0 for one in window.operators if one.operator in sources)
