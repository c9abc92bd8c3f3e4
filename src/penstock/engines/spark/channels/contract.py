"""The contract of a channel: the durable log between two queries, exactly-once by batch key.

Nothing outside this folder knows which implementation a cut has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

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
