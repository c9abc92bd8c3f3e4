"""The backlog of a query: the rows that no batch has read. It is None if a source does not report it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.engines.spark.jvm import FileSource
from penstock.engines.spark.queries.progress import Progress, SourceProgress

FILE_SOURCE = "FileStreamSource["
_FULL = 0.95  # share of the rows of the largest number of files; files differ

KAFKA_SOURCE = "KafkaV2["


def rows_read(progress: Progress) -> int:
    """Return the rows of a batch.

    Spark counts a row each time that it is read, and `foreachBatch` with three actions reads its rows three times. The
    offsets of Kafka count each row once.
    """
    rows = 0
    for source in progress.sources:
        start, end = _offset_sum(source.start_offset), _offset_sum(source.end_offset)
        is_counted = source.description.startswith(KAFKA_SOURCE) and start is not None and end is not None
        rows += round(end - start) if is_counted and end is not None and start is not None else source.num_input_rows
    return rows if progress.sources else progress.num_input_rows


def left_rows(progress: Progress) -> float | None:
    """Return the rows that a batch left in its sources; None if a source does not report its latest offset."""
    rows = [_left_in(source) for source in progress.sources]
    return None if not rows or None in rows else sum(left for left in rows if left is not None)


def _left_in(source: SourceProgress) -> float | None:
    """Return the rows between the end of a batch and the latest offset of a source, if both are numbers.

    Offsets count rows for some sources (Kafka) and something else for others (such as seconds). The batch itself shows
    how many rows one unit contains.
    """
    start, end, latest = map(_offset_sum, (source.start_offset, source.end_offset, source.latest_offset))
    if end is None or latest is None:
        return None
    if latest <= end:
        return 0.0
    # The first batch has no start offset, and a topic that has deleted its oldest rows does not begin at 0.
    units = 0.0 if start is None else end - start
    rows_per_unit = source.num_input_rows / units if units > 0 and source.num_input_rows > 0 else 1.0
    return (latest - end) * rows_per_unit


def _offset_sum(offset: Any) -> float | None:
    """Return the sum of all numbers in an offset, or None if it contains none."""
    if isinstance(offset, bool) or offset is None:
        return None
    if isinstance(offset, int | float):
        return float(offset)
    if isinstance(offset, str):
        try:
            return _offset_sum(json.loads(offset))
        except ValueError:
            return None
    parts = offset.values() if isinstance(offset, dict) else offset
    known = [number for part in parts if (number := _offset_sum(part)) is not None]
    return sum(known) if known else None


def reads_files_only(progress: Progress) -> bool:
    """Return whether all sources of a query are file sources, whose offsets count batches instead of rows."""
    return bool(progress.sources) and all(source.description.startswith(FILE_SOURCE) for source in progress.sources)


class _Read(NamedTuple):
    """Files in the batches up to one that has ended, and the rows of these batches."""

    files: int
    rows: float


@dataclass(slots=True)
class FileCount:
    """The files of a query over time, converted into rows by the rows that its files contained so far.

    A listing counts the files of the running batch as seen, and the rows of that batch are known when it has ended.
    """

    rows_per_file: float | None = None
    arrived_files: int | None = None  # in batches or pending
    pending_files: int | None = None
    is_limited: bool = False  # a batch may leave files behind
    most_files: int | None = None  # the largest number of files in a batch, if it is known
    _batches: int = 0  # batches that have ended
    _rows: float = 0.0  # rows of these batches
    _running: tuple[int, int] | None = None  # the number of the running batch, and the files up to it
    _seen: int = 0
    _first: _Read | None = None

    def add_batch(self, rows: int) -> None:
        """Add a batch that has ended."""
        self._batches, self._rows = self._batches + 1, self._rows + rows
        if self._running is not None and self._running[0] == self._batches:
            self._add_read(self._running[1])

    def skip(self) -> None:
        """Begin to count again, because Spark has discarded the reports of some batches."""
        self._first = self._running = None

    def update(self, sources: list[FileSource], *, in_batch: bool) -> None:
        """Add the current state of the sources."""
        seen = sum(source.seen for source in sources)
        if seen < self._seen:  # Spark forgets files that are a week old
            self.skip()
        self._seen = seen
        self._running = (self._batches + 1, seen) if in_batch else None
        if not in_batch:
            self._add_read(seen)
        pending = [source.pending for source in sources]
        known = [files for files in pending if files is not None]
        self.pending_files = sum(known) if len(known) == len(pending) else None
        self.arrived_files = None if self.pending_files is None else seen + self.pending_files
        self.is_limited = any(source.is_limited for source in sources)
        self.most_files = sources[0].most_files if len(sources) == 1 else None

    def _add_read(self, files: int) -> None:
        if self._first is None:
            self._first = _Read(files, self._rows)
        elif files > self._first.files:
            self.rows_per_file = (self._rows - self._first.rows) / (files - self._first.files)

    @property
    def pending_rows(self) -> float | None:
        if self.pending_files is None:
            return None
        if self.pending_files == 0:
            return 0.0
        return None if self.rows_per_file is None else self.pending_files * self.rows_per_file

    @property
    def limit_rows(self) -> int | None:
        """Return the largest number of rows in a batch, if it is known."""
        if self.most_files is None or self.rows_per_file is None:
            return None
        return round(self.most_files * self.rows_per_file) or None

    def is_full(self, rows: int) -> bool:
        """Return whether a batch of these rows read no more files because of the limit.

        Files that are pending at the end of a batch may have appeared while it was running.
        """
        if self.limit_rows is not None:
            return rows >= _FULL * self.limit_rows
        return self.is_limited and self.most_files is None and bool(self.pending_files)
