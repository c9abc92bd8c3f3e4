"""Give a pipeline as many unfinished rows as a trial allows: it always has input, and the latency stays meaningful."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import Window
from penstock.study.mst.throughput import mix

_SMOOTHING = 0.1  # weight of the latest interval in the mean throughput
_CORRECTION = 0.25  # share of the missing rows that the next interval adds
# Rows of a batch finish at its end. The load is corrected over more than one batch, so that it does not swing.
_BATCHES_TO_SMOOTH, _BATCHES_TO_CORRECT = 3.0, 1.5


class LoadControl:
    """Sets the rates of the sources after each interval so that `limit_rows` external rows are unfinished."""

    def __init__(self, engine: RunnableEngine, visits: Mapping[str, float], *, limit_rows: float, first: float) -> None:
        self._engine = engine
        self._visits = visits
        self._limit_rows = limit_rows
        self._parts = mix(engine.flow)
        self._arrived_rows = 0.0
        self.unfinished_rows = 0.0  # external rows after the latest interval
        self._finished_per_s = first
        self._batch_s = 0.0  # longest mean batch of a query; 0 if rows are processed one by one
        self._set_rate(first)

    def update(self, window: Window) -> None:
        seconds = window.end_s - window.start_s
        arrived = (window.external_rows_per_s or 0.0) * seconds
        # Rows of an earlier trial that a batch still contained when this trial began are read here without an arrival.
        self._arrived_rows = max(self._arrived_rows + arrived, rows_read(self._engine.flow, window))
        before, self.unfinished_rows = (
            self.unfinished_rows,
            unfinished_rows(self._engine.flow, window, self._visits, self._arrived_rows),
        )
        finished_per_s = max(0.0, arrived + before - self.unfinished_rows) / seconds
        self._batch_s = max((query.batch_s for query in window.pipelines if query.batch_s), default=self._batch_s)
        smoothing, correction = _SMOOTHING, _CORRECTION
        if self._batch_s > 0:
            smoothing = min(smoothing, seconds / (_BATCHES_TO_SMOOTH * self._batch_s))
            correction = min(correction, seconds / (_BATCHES_TO_CORRECT * self._batch_s))
        self._finished_per_s += smoothing * (finished_per_s - self._finished_per_s)
        missing = self._limit_rows - self.unfinished_rows
        self._set_rate(max(0.0, self._finished_per_s + correction * missing / seconds))

    def _set_rate(self, rows_per_s: float) -> None:
        for name, part in self._parts.items():
            self._engine.set_rate(name, rows_per_s * part)


def unfinished_rows(flow: Dataflow, window: Window, visits: Mapping[str, float], arrived_rows: float) -> float:
    """Return the external rows that wait or are being processed, except those in service row by row.

    Rows inside the dataflow are converted to external rows by the number of rows that reach their operator. Parallel
    branches process copies of the same external rows, so the branch with the most rows counts.
    """
    seen = {operator.operator: operator for operator in window.operators}
    ahead: dict[str, float] = {}  # operator -> unfinished rows on the way to it and at it
    for operator in flow.operators:
        if operator.kind is Kind.SOURCE:
            ahead[operator.name] = 0.0
            continue
        before = (ahead[name] for name in operator.inputs if name not in operator.feedback)
        own = (seen[operator.name].backlog_rows or 0) / visits[operator.name] if visits[operator.name] > 0 else 0.0
        ahead[operator.name] = own + max(before, default=0.0)
    return max(ahead.values()) + max(0.0, arrived_rows - rows_read(flow, window))


def rows_read(flow: Dataflow, window: Window) -> int:
    """Return the rows of all sources that were read since the start."""
    return sum(window.operator(op.name).rows_in_total or 0 for op in flow.operators if op.kind is Kind.SOURCE)
