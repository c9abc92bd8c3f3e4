"""The contract that every kind of source fulfils."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions


class SampleSize(NamedTuple):
    """The size of the first rows of a source."""

    bytes: int
    rows: int


class StreamSource(Protocol):
    """A declared source in a run directory."""

    def read(self, spark: SparkSession, options: ReaderOptions) -> DataFrame:
        """Return a streaming DataFrame with exactly `options.replicas` partitions."""

    def first(self) -> Offset:
        """Return the offset at which a new run starts to read."""

    def available(self) -> Offset | None:
        """Return the offset after the last row appended so far, or None if only Spark knows it.

        Raises PenstockError while the source does not respond.
        """

    def rows_between(self, start: Offset, end: Offset) -> int | None:
        """Return the rows between two offsets, or None if they are not known."""

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]] | None:
        """Return (append time, rows) for the rows between two offsets, or None if that is not known."""

    def sample_size(self, rows: int) -> SampleSize | None:
        """Return the size of about `rows` first rows, or None if it is not known."""

    def resume(self, read_up_to: Offset) -> None:
        """Prepare to continue after a break. The rows before the offset have been read."""

    def start_clock(self) -> None:
        """Append rows from now on, if the source appends them itself. All queries can take a batch now."""

    def set_rate(self, rows_per_s: float) -> None:
        """Change the rate. Raises PenstockError if the source has no rate."""

    def has_ended(self, at: Offset) -> bool:
        """Return whether a reader at this offset has read everything that has been appended."""
