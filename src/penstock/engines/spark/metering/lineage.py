"""Lineage: when the rows of a batch were appended at the sources.

Each batch reads a range of offsets from each of its inputs. A source knows the append times of a range. A range of a
channel consists of appends, and the key of an append names the checkpoint and the batch of the query that wrote it.
Following these keys leads back to the sources. No column is added to the user's rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from penstock.dataflow.edge import Edge
from penstock.engines.spark.queries.progress import Progress, SourceProgress
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.reading.offsets import START_ID, Offset, without_start_id
from penstock.engines.spark.run_directory.committed import Origin, Query

Ranges = dict[Origin, tuple[Offset, Offset]]  # input -> the offsets at which a batch began and ended
AppendTimes = list[tuple[float, float]]  # (append time, number of source rows)
_MAX_TIMES = 64
_MAX_DEPTH = 64  # rows of a loop may have passed through it many times


class Lineage:
    """Traces batches of all queries that were started in this process."""

    def __init__(self, context: RunContext) -> None:
        self._sources = context.sources
        self._directory = context.directory
        self._queries: dict[str, Query] = {}  # by checkpoint
        self._reported: dict[str, dict[int, Ranges | None]] = {}  # checkpoint -> batch -> ranges in its progress report
        self._depth = 0
        # Ask each source once per batch only: a source may discard append times that were asked for before.
        self.append_times = lru_cache(maxsize=4096)(self._append_times)

    def add_query(self, query: Query) -> None:
        self._queries[query.checkpoint] = query

    def add_progress(self, checkpoint: str, reports: list[Progress]) -> None:
        """Remember the ranges in these progress reports.

        Spark keeps the offset files of a hundred batches, so these reports are the only record of earlier ones. They do
        not name the sources, but every offset contains an id that its source got at the start of the query.
        """
        query = self._queries[checkpoint]
        names = self._directory.checkpoint(query).names_by_start_id()
        self._reported[checkpoint] = {
            progress.batch_id: _reported_ranges(progress.sources, names, query) for progress in reports if names
        }

    def ranges(self, checkpoint: str, batch: int) -> Ranges | None:
        """Return the range of each input that a batch read, or None if there is no record of it any more."""
        query = self._queries.get(checkpoint)
        if query is None:
            return None
        log = self._directory.checkpoint(query)
        try:
            ends = log.offsets(batch)
            starts = log.offsets(batch - 1) if batch > 0 else {}
        except FileNotFoundError:  # Spark has deleted the offsets of this batch or of the one before
            return self._reported.get(checkpoint, {}).get(batch)
        return {
            source.origin: (starts.get(source.name, source.start), ends[source.name])
            for source in query.inputs
            if source.name in ends
        }

    def _append_times(self, checkpoint: str, batch: int) -> AppendTimes | None:
        """Return when the rows from which a batch originates were appended at the sources; None if unknown."""
        ranges = self.ranges(checkpoint, batch)
        if ranges is None or self._depth > _MAX_DEPTH:
            return None
        self._depth += 1
        try:
            times: AppendTimes = []
            for origin, (start, end) in ranges.items():
                if start != end:
                    of_range = self._append_times_of_range(checkpoint, origin, start, end)
                    if of_range is None:
                        return None
                    times += of_range
            return _merge_neighbours(times)
        finally:
            self._depth -= 1

    def _append_times_of_range(self, checkpoint: str, origin: Origin, start: Offset, end: Offset) -> AppendTimes | None:
        if not isinstance(origin, Edge):
            at_source = self._sources[origin].append_times(start, end)
            return None if at_source is None else [(at, float(rows)) for at, rows in at_source]
        try:
            folder = self._queries[checkpoint].channels_read[origin]
            appends = self._directory.channel(folder).appends_between(start, end)
        except FileNotFoundError:
            return None
        times: AppendTimes = []
        for append in appends:
            producer, _, batch = append.key.rpartition(".")
            upstream = self.append_times(producer, int(batch))
            if upstream is None:
                return None
            times += upstream
        return times


def _reported_ranges(sources: tuple[SourceProgress, ...], names: dict[int, str], query: Query) -> Ranges | None:
    """Return the ranges in a progress report, or None unless the start id in its offset identifies every source."""
    by_name: dict[str, SourceProgress] = {}
    for progress in sources:
        name = names.get(_start_id(progress.end_offset))
        if name is None:
            return None
        by_name[name] = progress
    return {
        source.origin: (
            without_start_id(by_name[source.name].start_offset or source.start),
            without_start_id(by_name[source.name].end_offset),
        )
        for source in query.inputs
        if source.name in by_name
    }


def _start_id(offset: Any) -> int:
    return offset.get(START_ID, -1) if isinstance(offset, dict) else -1


def _merge_neighbours(times: AppendTimes) -> AppendTimes:
    """Return at most `_MAX_TIMES` entries; neighbours in time are merged, which keeps rows and mean time."""
    if len(times) <= _MAX_TIMES:
        return times
    times = sorted(times)
    size = -(-len(times) // _MAX_TIMES)
    merged = []
    for low in range(0, len(times), size):
        group = times[low : low + size]
        rows = sum(count for _, count in group)
        if rows:
            merged.append((sum(at * count for at, count in group) / rows, rows))
    return merged
