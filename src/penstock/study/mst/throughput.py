"""The external rows/s that a saturated pipeline processes, from its windows."""

from __future__ import annotations

from penstock.control.visit_ratios import pipeline_visits
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.measure.window import PipelineWindow, Window


def sustained(flow: Dataflow, window: Window, before: Window | None, since: Window | None = None) -> float | None:
    """Return the throughput of the slowest pipeline in external rows/s; None if it is unknown.

    Micro-batch: rows are counted when their batch is committed, and the number of batches in a window varies. Rows are
    therefore divided by the duration of their batches, which follow each other without a gap under a backlog. A
    pipeline without a batch in this window may be the slowest one, so the result is None then.

    Row by row: a row may have been read and still wait at its source, so the growth of the backlog since the window
    `before` is subtracted. The proportion of the sources is measured from the window `since`: a source that ended
    earlier does not count.
    """
    known = pipeline_visits(flow, window, _read(flow, window, since))
    if known is None:
        return None
    rates = []
    for pipeline in window.pipelines:
        share = known[pipeline.pipeline]
        if share == 0 or not (pipeline.rows_in or pipeline.backlog_rows):
            continue
        rows_per_s = _taken(flow, pipeline, window, before)
        if rows_per_s is None:
            return None
        rates.append(rows_per_s / share)
    return min(rates, default=None)


def _read(flow: Dataflow, window: Window, since: Window | None) -> dict[str, float]:
    earlier = {} if since is None else {operator.operator: operator.rows_in_total or 0 for operator in since.operators}
    now = {operator.operator: operator.rows_in_total or 0 for operator in window.operators}
    return {name: float(now.get(name, 0) - earlier.get(name, 0)) for name in _sources(flow)}


def _taken(flow: Dataflow, pipeline: PipelineWindow, window: Window, before: Window | None) -> float | None:
    """Return the rows/s that enter a pipeline."""
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
    """Return the rows that wait at each source."""
    seen = {operator.operator: operator.backlog_rows or 0 for operator in window.operators}
    return {name: seen.get(name, 0) for name in _sources(flow)}


def _sources(flow: Dataflow) -> list[str]:
    return [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]


def mix(flow: Dataflow) -> dict[str, float]:
    """Return the share of each source by its declared rate; equal shares if some have none."""
    declared = {name: getattr(flow[name].source, "rows_per_s", None) for name in _sources(flow)}
    rates = {name: float(rate or 1.0) for name, rate in declared.items()}
    if not all(declared.values()):
        rates = dict.fromkeys(declared, 1.0)
    return {name: rate / sum(rates.values()) for name, rate in rates.items()}
