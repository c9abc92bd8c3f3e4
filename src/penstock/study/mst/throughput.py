"""External rows a second that a window says a pipeline takes, when there is always something to take."""

from __future__ import annotations

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.measure.window import PipelineWindow, Window


def sustained(flow: Dataflow, window: Window, before: Window | None) -> float | None:
    """The least of what its pipelines take, each in rows from outside; None where windows do not say.

    In micro-batches rows are counted when a batch is committed, and a window holds two batches or three by chance; so
    rows go by the time of the batches that had them, which with a backlog follow each other without a gap. Without
    batches a row may be read and still wait: what came to wait since the window before was not taken.
    """
    seen = {one.operator: one for one in window.operators}
    sources = [one.name for one in flow.operators if one.kind is Kind.SOURCE]
    read = [seen[name].rows_in_total for name in sources if name in seen]
    external = sum(rows for rows in read if rows is not None)
    if len(read) < len(sources) or None in read or external <= 0:
        return None
    found = []
    for pipeline in window.pipelines:
        rows_per_s = _taken(pipeline, window, before)
        share = _share(flow, pipeline, window, external)
        if rows_per_s is not None and share is not None and share > 0:
            found.append(rows_per_s / share)
    return min(found, default=None)


def _taken(pipeline: PipelineWindow, window: Window, before: Window | None) -> float | None:
    """Rows a second into a pipeline."""
    if pipeline.batches and pipeline.batch_s:
        return pipeline.rows_in / (pipeline.batches * pipeline.batch_s)
    earlier = None if before is None else next((o for o in before.pipelines if o.pipeline == pipeline.pipeline), None)
    span_s = window.end_s - window.start_s
    if earlier is None or earlier.backlog_rows is None or pipeline.backlog_rows is None or span_s <= 0:
        return None
    taken = pipeline.rows_in - (pipeline.backlog_rows - earlier.backlog_rows)
    return taken / span_s if taken > 0 else None


def _share(flow: Dataflow, pipeline: PipelineWindow, window: Window, external: int) -> float | None:
    """Rows that come to a pipeline for each row from outside, since the beginning."""
    inside = set(pipeline.operators)
    seen = {one.operator: one for one in window.operators}
    total = 0
    for name in pipeline.operators:
        entries = [name] if flow[name].kind is Kind.SOURCE else [one for one in flow[name].inputs if one not in inside]
        for entry in entries:
            rows = seen[entry].rows_out_total if entry in seen else None
            if rows is None:
                return None
            total += rows
    return total / external


def waiting(flow: Dataflow, window: Window) -> int:
    """Rows that wait at the sources."""
    sources = {one.name for one in flow.operators if one.kind is Kind.SOURCE}
    return sum(one.backlog_rows or 0 for one in window.operators if one.operator in sources)
