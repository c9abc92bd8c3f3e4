"""External rows a second that a window says a pipeline takes, when there is always something to take."""

from __future__ import annotations

from penstock.control.visit_ratios import pipeline_visits
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.measure.window import PipelineWindow, Window


def sustained(flow: Dataflow, window: Window, before: Window | None, since: Window | None = None) -> float | None:
    """The least of what its pipelines take, each in rows from outside; None where windows do not say.

    In micro-batches rows are counted when a batch is committed, and a window holds two batches or three by chance; so
    rows go by the time of the batches that had them, which with a backlog follow each other without a gap. One that
    made no batch in this window may be the slowest of all. Without batches a row may be read and still wait at its
    source: what came to wait there since the window before was not taken. Sources count as they were read after
    `since`: one that has ended before adds nothing.
    """
    known = pipeline_visits(flow, window, _read(flow, window, since))
    if known is None:
        return None
    found = []
    for pipeline in window.pipelines:
        share = known[pipeline.pipeline]
        if share == 0 or not (pipeline.rows_in or pipeline.backlog_rows):
            continue
        rows_per_s = _taken(flow, pipeline, window, before)
        if rows_per_s is None:
            return None
        found.append(rows_per_s / share)
    return min(found, default=None)


def _read(flow: Dataflow, window: Window, since: Window | None) -> dict[str, float]:
    earlier = {} if since is None else {one.operator: one.rows_in_total or 0 for one in since.operators}
    now = {one.operator: one.rows_in_total or 0 for one in window.operators}
    return {name: float(now.get(name, 0) - earlier.get(name, 0)) for name in _sources(flow)}


def _taken(flow: Dataflow, pipeline: PipelineWindow, window: Window, before: Window | None) -> float | None:
    """Rows a second into a pipeline."""
    if pipeline.batches and pipeline.batch_s:
        return pipeline.rows_in / (pipeline.batches * pipeline.batch_s)
    if before is None:
        return None
    sources = [name for name in pipeline.operators if flow[name].kind is Kind.SOURCE]
    waited, waits = waiting(flow, before), waiting(flow, window)
    came_to_wait = sum(waits[name] - waited[name] for name in sources)
    span_s = window.end_s - window.start_s
    taken = pipeline.rows_in - came_to_wait
    return taken / span_s if taken > 0 and span_s > 0 else None


def waiting(flow: Dataflow, window: Window) -> dict[str, int]:
    """Rows that wait at each source."""
    seen = {one.operator: one.backlog_rows or 0 for one in window.operators}
    return {name: seen.get(name, 0) for name in _sources(flow)}


def _sources(flow: Dataflow) -> list[str]:
    return [one.name for one in flow.operators if one.kind is Kind.SOURCE]


def mix(flow: Dataflow) -> dict[str, float]:
    """What each source has of all rows, by the rates that are declared; where some have none, all have the same."""
    declared = {name: getattr(flow[name].source, "rows_per_s", None) for name in _sources(flow)}
    rates = {name: float(rate or 1.0) for name, rate in declared.items()}
    if not all(declared.values()):
        rates = dict.fromkeys(declared, 1.0)
    return {name: rate / sum(rates.values()) for name, rate in rates.items()}
