"""The embedded channel: its folder in the run directory holds the log, and the rows in Arrow files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engines.spark.channels.logged_channel import LoggedChannel, write_description
from penstock.engines.spark.reading.shares import range_bounds
from penstock.engines.spark.storage.row_files import RowFile, RowSlice, read_slices, split_files, write_dataframe


class EmbeddedChannel(LoggedChannel):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, FolderStore(folder / "rows"))

    @staticmethod
    def create(folder: Path, schema: str) -> EmbeddedChannel:
        """Create a channel. `schema` is the schema of the rows as JSON of Spark."""
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        write_description(folder, schema)
        return EmbeddedChannel(folder)


class FolderStore:
    """Rows of a channel in Arrow files on a local or shared disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, df: DataFrame, key: str) -> list[RowFile]:
        return write_dataframe(df, self._folder)

    def split(self, files: Sequence[RowFile], replicas: int, shares: Sequence[float] = ()) -> list[list[RowSlice]]:
        return split_files(files, range_bounds(sum(file.rows for file in files), replicas, shares))

    def read(self, slices: Iterable[RowSlice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return read_slices(slices, schema)

    def discard(self, files: Sequence[RowFile]) -> None:
        self.delete(files)

    def delete(self, files: Sequence[RowFile]) -> None:
        for file in files:
            Path(file.path).unlink(missing_ok=True)

    def check_available(self) -> None:
        """Do nothing: a disk is always available."""

    def delete_all(self) -> None:
        """Do nothing: the rows are deleted together with the channel's folder."""
