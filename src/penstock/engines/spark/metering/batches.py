"""The committed batches of queries, out of Spark's progress, and the rows that went through operators in them."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Kind, Operator
from penstock.dataflow.edge import Edge
from penstock.engines.spark.channels import Channel
from penstock.engines.spark.compile.compiler import ROWS
from penstock.engines.spark.jvm import progress_newest_first
from penstock.engines.spark.metering.lineage import Lineage
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.committed import Origin, Query, QueryInput, SourceInput
from penstock.engines.spark.sources.contract import StreamSource


@dataclass(slots=True)
class Batch:
    """One committed batch of a query."""

    number: int
    ended_s: float
    seconds: float
    phases_s: dict[str, float]
    rows_read: dict[Origin, int | None]  # by input
    rows_out: dict[str, int]  # by operator, as observed
    state_rows: int
    state_bytes: int
    update_s: float  # of state, until the last row is out
    commit_s: float

    @property
    def took_rows(self) -> bool:
        """Also where it is not known."""
        return any(rows != 0 for rows in self.rows_read.values())

    @property
    def moved_rows(self) -> bool:
        """It took some, or gave some: timers in processing time make batches without either for ever."""
        return self.took_rows or any(self.rows_out.values())


class Batches:
    def __init__(self, sources: dict[str, StreamSource], channel: Callable[[str], Channel], lineage: Lineage) -> None:
        self._sources = sources
        self._channel = channel
        self._lineage = lineage
        self.seen: dict[str, int] = {}  # checkpoint -> last batch handed out

    def fresh(self, query: Query, running: RunningQuery) -> list[Batch]:
        """Those that were committed since it was asked last: each is handed out once."""
        found = []
        written = running.written
        recent = _since(running.query, self.seen.get(query.checkpoint, -1))
        self._lineage.hear(query.checkpoint, recent)
        for progress in recent:
            number = progress["batchId"]
            self.seen[query.checkpoint] = number
            batch = self._batch(query, number, progress)
            rows = written.get(number, _written_by_spark(progress))
            if running.compiled.counted is not None and rows is not None:
                batch.rows_out[running.compiled.counted] = rows
            found.append(batch)
            self._lineage.moments(query.checkpoint, number)  # while the channels before it still know
        return found

    def _batch(self, query: Query, number: int, progress: dict[str, Any]) -> Batch:
        ranges = self._lineage.ranges(query.checkpoint, number) or {}
        read = {
            source.origin: self.rows_between(source, *ranges[source.origin]) if source.origin in ranges else None
            for source in query.inputs
        }
        if len(read) == 1 and None in read.values():
            (only,) = read
            # Marks of event time are rows to Spark but not to anybody else; channels always know their rows.
            read[only] = None if isinstance(only, Edge) else progress["numInputRows"]
        states = progress.get("stateOperators") or []
        phases = {name: milliseconds / 1000 for name, milliseconds in progress["durationMs"].items()}
        began = datetime.datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        return Batch(
            number=number,
            ended_s=began + phases["triggerExecution"],
            seconds=phases["triggerExecution"],
            phases_s=phases,
            rows_read=read,
            rows_out=_rows_out(progress),
            state_rows=sum(state["numRowsTotal"] for state in states),
            state_bytes=sum(state["memoryUsedBytes"] for state in states),
            update_s=sum(state["allUpdatesTimeMs"] for state in states) / 1000,
            commit_s=sum(state["commitTimeMs"] for state in states) / 1000,
        )

    def rows_between(self, source: QueryInput, start: Offset, end: Offset) -> int | None:
        if isinstance(source, SourceInput):
            return self._sources[source.operator].rows_between(start, end)
        try:
            return self._channel(source.folder).rows_between(start, end)
        except FileNotFoundError:
            return None


def turns_over_nothing(running: RunningQuery) -> bool:
    """Whether its last two batches brought no rows in and none out.

    Timers in processing time, and state that expires, make such batches for ever. One of them would not tell: behind a
    start it may be the next that closes the windows which are due.
    """
    written = running.written if running.compiled.counted is not None else {}
    last = list(itertools.islice(_newest_first(running.query), 2))
    return len(last) == 2 and all(_without_rows(progress, written) for progress in last)


def _without_rows(progress: dict[str, Any], written: dict[int, int | None]) -> bool:
    if any(source["startOffset"] != source["endOffset"] for source in progress["sources"]):
        return False
    rows = written.get(progress["batchId"], _written_by_spark(progress))
    return not any(_rows_out(progress).values() or [True]) if rows is None else rows == 0


def _since(query: StreamingQuery, seen: int) -> list[dict[str, Any]]:
    """The batches behind that number, oldest first."""
    return list(itertools.takewhile(lambda progress: progress["batchId"] > seen, _newest_first(query)))[::-1]


def _newest_first(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """The progress of batches, one by one: each look is a call to the JVM."""
    for report in progress_newest_first(query):
        progress = json.loads(report)
        if "addBatch" in progress["durationMs"]:  # otherwise it says that there was nothing to do
            yield progress


def _rows_out(progress: dict[str, Any]) -> dict[str, int]:
    """By operator, as observed."""
    observed = progress.get("observedMetrics") or {}
    return {name.removeprefix(ROWS): values["rows"] for name, values in observed.items() if name.startswith(ROWS)}


def rows_through(operator: Operator, query: Query, batches: list[Batch]) -> tuple[int | None, int | None]:
    """Rows in and out of an operator over these batches; None if one of its inputs cannot be counted."""
    rows_in: int | None = 0
    rows_out: int | None = 0
    for batch in batches:
        if operator.kind is Kind.SOURCE:
            read = batch.rows_read.get(operator.name)
            rows_in = rows_out = None if rows_in is None or read is None else rows_in + read
            continue
        for name in operator.inputs:
            edge = Edge(name, operator.name)
            came = batch.rows_read.get(edge if query.find_input(edge) else name, batch.rows_out.get(name))
            rows_in = None if rows_in is None or came is None else rows_in + came
        out = batch.rows_out.get(operator.name)
        rows_out = None if rows_out is None or out is None else rows_out + out
    return rows_in, (None if operator.kind is Kind.SINK else rows_out)


def _written_by_spark(progress: dict[str, Any]) -> int | None:
    rows = (progress.get("sink") or {}).get("numOutputRows", -1)
    return rows if rows >= 0 else None
