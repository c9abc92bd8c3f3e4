"""The contract of a channel: the durable log between two queries, which stores each batch of its producer once.

Only this package knows which implementation a channel has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.storage.row_files import RowFile, RowSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """The rows of one batch of the producer, and when they were appended."""

    number: int
    key: str
    rows: int
    bytes: int
    at_s: float


class Channel(Protocol):
    """One producer appends; any number of consumers read, each at its own offset."""

    schema: str  # Spark's JSON form of the schema; its metadata names the columns that hold event time

    @property
    def has_event_time(self) -> bool: ...

    def append(self, df: DataFrame, key: str, watermark_ms: Callable[[], int | None] | None = None) -> int:
        """Append a batch under its key and return its rows. The last key is not appended again.

        `watermark_ms` is called when the batch has run. It returns the watermark of the producer's output: no row of a
        later batch is older. It becomes the watermark of the readers.
        """

    def read(self, spark: SparkSession, options: ReaderOptions, *, with_watermark: bool = True) -> DataFrame:
        """Return a streaming DataFrame with exactly `options.replicas` partitions.

        Without its watermark, another watermark may be declared on the DataFrame; Spark allows one on each path.
        """

    def first(self) -> Offset:
        """Return the offset at which a new reader starts."""

    def end(self) -> Offset:
        """Return the offset after the last append."""

    def rows_between(self, start: Offset, end: Offset) -> int: ...

    def appends_between(self, start: Offset, end: Offset) -> list[Append]: ...

    def delete_before(self, offset: Offset) -> None:
        """Delete the rows before an offset that every consumer has passed."""

    def check_available(self) -> None:
        """Raise ChannelUnavailableError while rows cannot be written or read; measurements would be stale then."""

    def delete_rows(self) -> None:
        """Delete all rows; no query reads them any more. Raise ChannelUnavailableError if that is not possible now."""


class ChannelUnavailableError(PenstockError):
    """The store of a channel's rows does not respond at the moment."""


class RowStore(Protocol):
    """Stores the rows of a channel. The channel's log lists which of them count. Spark pickles it to its workers."""

    def write(self, df: DataFrame, key: str) -> list[RowFile]:
        """Run the batch and store its rows. Return what successful tasks have written."""

    def split(self, files: Sequence[RowFile], replicas: int, shares: Sequence[float] = ()) -> list[list[RowSlice]]:
        """Return the rows of these files in exactly `replicas` parts with these shares; empty: equal shares."""

    def read(self, slices: Iterable[RowSlice], schema: pa.Schema) -> Iterator[pa.RecordBatch]: ...

    def discard(self, files: Sequence[RowFile]) -> None:
        """Delete files that no log lists, if the store can."""

    def delete(self, files: Sequence[RowFile]) -> None:
        """Delete these files and all earlier ones, now or later. Every consumer has read them."""

    def check_available(self) -> None: ...

    def delete_all(self) -> None: ...
