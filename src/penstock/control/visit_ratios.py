"""Visit ratios: the rows that reach each operator or pipeline per external row.

They are computed from measured selectivities, not from row counts: rows that wait between two pipelines have left the
first one and not reached the second one.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.models.network.traffic import TrafficStream, solve_traffic
from penstock.models.queueing.errors import UnstableError


def pipeline_visits(flow: Dataflow, window: Window, read: Mapping[str, float]) -> dict[str, float] | None:
    """Return the rows that reach each pipeline per external row; None if selectivities are unknown.

    `read` contains the rows of each source; only their proportion matters.
    """
    inflows = _inflows(flow, window, read)
    return None if inflows is None else {name: sum(coming.values()) for name, coming in inflows.items()}


def external_backlog(flow: Dataflow, window: Window, read: Mapping[str, float]) -> float:
    """Return the number of external rows that would occupy the busiest pipeline as long as the waiting rows do.

    Rows that wait upstream of a pipeline count for it. If visit ratios are unknown, it is the sum of all waiting rows.
    """
    own = {pipeline.pipeline: float(pipeline.backlog_rows or 0) for pipeline in window.pipelines}
    inflows = _inflows(flow, window, read)
    if inflows is None:
        return sum(own.values())

    ahead: dict[str, float] = {}

    def rows_ahead(name: str) -> float:
        if name not in ahead:
            ahead[name] = 0.0  # in a loop nothing is counted twice
            share = sum(inflows[name].values())
            coming = {before: part / share for before, part in inflows[name].items() if share and before is not None}
            ahead[name] = own[name] / (share or 1.0) + sum(part * rows_ahead(before) for before, part in coming.items())
        return ahead[name]

    return max((rows_ahead(name) for name in own), default=0.0)


def operator_visits(flow: Dataflow, window: Window, read: Mapping[str, float]) -> dict[str, float] | None:
    """Return the rows that reach each operator except sources per external row; None if selectivities are unknown."""
    external = sum(read.values())
    if external <= 0:
        return None
    seen = {operator.operator: operator for operator in window.operators}
    gains = {
        operator.name: _gain(seen.get(operator.name)) for operator in flow.operators if operator.kind is not Kind.SOURCE
    }
    streams = [
        TrafficStream(source=None, target=name, gain=read[before] / external)
        if before in read
        else TrafficStream(source=before, target=name, gain=(gains[before] or 0.0) * _sent(seen, before, name))
        for name in gains
        for before in flow[name].inputs
    ]
    try:
        visits = solve_traffic(list(gains), streams, 1.0).arrival_per_s
    except UnstableError:  # a loop that multiplies rows
        return None
    # The selectivity of an operator that should receive rows and has not received any is unknown.
    if any(visits[name] > 0 and gain is None and flow[name].kind is not Kind.SINK for name, gain in gains.items()):
        return None
    return visits


def _inflows(flow: Dataflow, window: Window, read: Mapping[str, float]) -> dict[str, dict[str | None, float]] | None:
    """Return the input of each pipeline per external row, by the pipeline it comes from (None: a source)."""
    coming_by = operator_visits(flow, window, read)
    if coming_by is None:
        return None
    external = sum(read.values())
    seen = {operator.operator: operator for operator in window.operators}
    out = {name: rows / external for name, rows in read.items()}
    out |= {name: rows * (_gain(seen.get(name)) or 0.0) for name, rows in coming_by.items()}
    readers = {name: [query for query in window.pipelines if name in query.operators] for name in read}

    home = {name: query.pipeline for query in window.pipelines for name in query.operators}

    def inflow(pipeline: PipelineWindow) -> dict[str | None, float]:
        inside = pipeline.operators
        coming: dict[str | None, float] = {
            None: sum(out[name] * _part(pipeline, readers[name]) for name in inside if name in read)
        }
        for name in inside:
            for before in flow[name].inputs:
                if before not in inside:
                    where = home.get(before)
                    coming[where] = coming.get(where, 0.0) + out[before] * _sent(seen, before, name)
        return coming

    return {query.pipeline: inflow(query) for query in window.pipelines}


def rows_read(flow: Dataflow, window: Window) -> dict[str, float]:
    """Return the rows that were read from each source in this window."""
    seen = {operator.operator: operator for operator in window.operators}
    sources = [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]
    return {name: float(seen[name].rows_in or 0) if name in seen else 0.0 for name in sources}


def _part(pipeline: PipelineWindow, readers: list[PipelineWindow]) -> float:
    """Return the part of a source that this pipeline reads, if several read it, as in a watched program."""
    total = sum(reader.rows_in for reader in readers)
    return 1.0 if len(readers) == 1 else pipeline.rows_in / total if total else 0.0


def _sent(seen: Mapping[str, OperatorWindow], before: str, name: str) -> float:
    return seen[before].share_for(name) if before in seen else 1.0


def _gain(operator: OperatorWindow | None) -> float | None:
    if operator is None or not operator.rows_in_total or operator.rows_out_total is None:
        return None
    return operator.rows_out_total / operator.rows_in_total
