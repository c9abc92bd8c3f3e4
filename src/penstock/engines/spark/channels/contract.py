"""The contract of a channel: the durable log between two queries, exactly-once by batch key.

Nothing outside this folder knows which implementation a cut has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.storage.row_files import RowFile, Slice

Offset = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """The watermark that travels with a channel's rows."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """One append: the rows of one batch of the producer, and when they came."""

    number: int
    key: str
    rows: int
    bytes: int
    at_s: float


class Channel(Protocol):
    """Append by one producer, read by any number of consumers, each at its own offset."""

    schema: str  # Spark's JSON of the rows' schema
    event_time: EventTime | None

    def append(self, df: Any, key: str, latest_event_s: Callable[[], float | None] | None = None) -> int:
        """Appends a batch under its key and returns its rows; a key appended before is not appended again.

        `latest_event_s` tells, once the batch has run, the latest event time that the producer has seen. It may be
        later than that of any row that came through the producer's filters; readers' watermarks move by it.
        """

    def read(self, spark: Any, *, name: str, replicas: int, query: str, opens_at: int) -> Any:
        """A streaming DataFrame of exactly `replicas` partitions, named for Spark's source evolution."""

    def first(self) -> Offset:
        """Where a new reader starts."""

    def end(self) -> Offset:
        """Behind the last append."""

    def rows_between(self, start: Offset, end: Offset) -> int: ...

    def appends_between(self, start: Offset, end: Offset) -> list[Appended]: ...

    def forget(self, before: Offset) -> None:
        """Every consumer is past this offset: what lies before it may be deleted."""

    def check(self) -> None:
        """Raises ChannelBusyError while rows can be neither written nor read: then nothing can be measured."""

    def drop(self) -> None:
        """Nobody reads it any more: its rows go. Raises ChannelBusyError if they cannot go now."""


class ChannelBusyError(PenstockError):
    """What holds a channel's rows does not answer at the moment."""


class Place(Protocol):
    """Where the rows of a channel lie. It travels to Spark's workers; its log says which rows count."""

    def write(self, df: Any, key: str) -> list[RowFile]:
        """Runs the batch and lays its rows down; only what is named here was written by tasks that succeeded."""

    def shares(self, files: Sequence[RowFile], replicas: int) -> list[list[Slice]]:
        """The rows of these in exactly so many shares."""

    def read(self, slices: Iterable[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]: ...

    def discard(self, files: Sequence[RowFile]) -> None:
        """These were written in vain: no log names them."""

    def delete(self, files: Sequence[RowFile]) -> None:
        """Everybody has read these, and all that was written before them; it may go now or later."""

    def check(self) -> None: ...

    def drop(self) -> None: ...
