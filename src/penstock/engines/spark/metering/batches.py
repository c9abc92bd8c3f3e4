"""The committed batches of queries, from Spark's progress reports, and the rows that passed through each operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.dataflow import Kind, Operator
from penstock.dataflow.edge import Edge
from penstock.engines.spark.compile.compiler import Compiled
from penstock.engines.spark.metering.lineage import Lineage
from penstock.engines.spark.queries.progress import Progress, StateProgress, batches_after
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.committed import Origin, Query, QueryInput, SourceInput


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """The state of one operator at the end of a batch, and what the batch did with it."""

    rows: int = 0
    bytes: int = 0
    late_rows: int = 0  # dropped, because they were later than the watermark
    update_s: float = 0.0  # updating the state, until the last row was emitted
    commit_s: float = 0.0  # committing the state


@dataclass(slots=True)
class Batch:
    """One committed batch of a query."""

    number: int
    ended_s: float
    seconds: float
    phases_s: dict[str, float]
    rows_read: dict[Origin, int | None]  # by input; None: unknown
    rows_out: dict[str, int]  # operator -> rows, as far as they were counted
    states: dict[str, OperatorState]  # operator with state -> its state
    dropped_rows: dict[str, int] = field(default_factory=dict)  # operator class -> rows above its limit

    @property
    def may_have_read_rows(self) -> bool:
        return any(rows != 0 for rows in self.rows_read.values())

    @property
    def may_have_moved_rows(self) -> bool:
        """Return False for batches that neither read nor emit rows, such as those of timers in processing time."""
        return self.may_have_read_rows or any(self.rows_out.values())


class CommittedBatches:
    """Returns each committed batch of each query exactly once."""

    def __init__(self, context: RunContext, lineage: Lineage) -> None:
        self._sources = context.sources
        self._directory = context.directory
        self._lineage = lineage
        self.last_returned: dict[str, int] = {}  # checkpoint -> batch id

    def fetch(self, query: Query, running: RunningQuery) -> list[Batch]:
        """Return the batches that were committed since the last call."""
        reports = batches_after(running.query, self.last_returned.get(query.checkpoint, -1))
        if not reports:
            return []
        self._lineage.add_progress(query.checkpoint, reports)
        counted_operator, rows_written = running.compiled.counted, running.rows_written
        batches = []
        for progress in reports:
            self.last_returned[query.checkpoint] = progress.batch_id
            batch = self._batch(query, progress, running.compiled)
            rows = rows_written.get(progress.batch_id, progress.rows_written)
            if counted_operator is not None and rows is not None:
                batch.rows_out[counted_operator] = rows
            _add_row_by_row(batch, running.compiled.row_by_row)
            batches.append(batch)
            # Compute and cache the append times now, while the upstream channels still hold the appends.
            self._lineage.append_times(query.checkpoint, progress.batch_id)
        return batches

    def rows_between(self, source: QueryInput, start: Offset, end: Offset) -> int | None:
        """Return the number of rows between two offsets of an input, or None if it is unknown."""
        if isinstance(source, SourceInput):
            return self._sources[source.operator].rows_between(start, end)
        try:
            return self._directory.channel(source.folder).rows_between(start, end)
        except FileNotFoundError:
            return None

    def _batch(self, query: Query, progress: Progress, compiled: Compiled) -> Batch:
        return Batch(
            number=progress.batch_id,
            ended_s=progress.ended_s,
            seconds=progress.batch_s,
            phases_s=progress.phases_s,
            rows_read=self._rows_read(query, progress),
            rows_out=progress.rows_out,
            dropped_rows=progress.dropped_rows,
            states=_states_by_operator(progress.state_operators, compiled.stateful, compiled.state_owners),
        )

    def _rows_read(self, query: Query, progress: Progress) -> dict[Origin, int | None]:
        ranges = self._lineage.ranges(query.checkpoint, progress.batch_id) or {}
        rows = {
            source.origin: self.rows_between(source, *ranges[source.origin]) if source.origin in ranges else None
            for source in query.inputs
        }
        if len(rows) == 1 and None in rows.values():
            (origin,) = rows
            # Spark's count serves for a source. For a channel it would include the markers that carry event time.
            rows[origin] = None if isinstance(origin, Edge) else progress.num_input_rows
        return rows


def _add_row_by_row(batch: Batch, row_by_row: dict[str, str]) -> None:
    """Add the rows of operators that emit one row per row, upstream ones first."""
    for name, before in row_by_row.items():
        edge = Edge(before, name)
        rows = batch.rows_read.get(edge if edge in batch.rows_read else before, batch.rows_out.get(before))
        if rows is not None:
            batch.rows_out.setdefault(name, rows)


def _states_by_operator(
    reported: tuple[StateProgress, ...], operators: tuple[str, ...], owners: tuple[str, ...] | None
) -> dict[str, OperatorState]:
    """Return the state of each operator. The first operator has all of it if the owners are not known."""
    if owners is None or len(owners) != len(reported):
        owners = operators[:1] * len(reported)
    by_operator = {}
    for operator in operators:
        states = [state for state, owner in zip(reported, owners, strict=True) if owner == operator]
        by_operator[operator] = OperatorState(
            rows=sum(state.num_rows_total for state in states),
            bytes=sum(state.memory_used_bytes for state in states),
            late_rows=sum(state.num_rows_dropped_by_watermark for state in states),
            update_s=sum(state.all_updates_time_ms for state in states) / 1000,
            commit_s=sum(state.commit_time_ms for state in states) / 1000,
        )
    return by_operator


class RowCounts(NamedTuple):
    """Rows into and out of an operator; None if they cannot be counted."""

    rows_in: int | None
    rows_out: int | None


def rows_through(operator: Operator, query: Query, batches: list[Batch]) -> RowCounts:
    """Return the rows into and out of an operator over these batches."""
    rows_in: int | None = 0
    rows_out: int | None = 0
    for batch in batches:
        if operator.kind is Kind.SOURCE:
            read = batch.rows_read.get(operator.name)
            rows_in = rows_out = None if rows_in is None or read is None else rows_in + read
            continue
        for name in operator.inputs:
            edge = Edge(name, operator.name)
            origin: Origin = edge if query.find_input(edge) is not None else name
            received = batch.rows_read.get(origin, batch.rows_out.get(name))
            rows_in = None if rows_in is None or received is None else rows_in + received
        emitted = batch.rows_out.get(operator.name)
        rows_out = None if rows_out is None or emitted is None else rows_out + emitted
    return RowCounts(rows_in, None if operator.kind is Kind.SINK else rows_out)
