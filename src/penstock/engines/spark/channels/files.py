"""Rows of a channel in Arrow files on a local or shared disk.

Tasks write a file each under names of their own, so that a task tried twice leaves a stray file and never a wrong row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engines.spark.storage import row_files
from penstock.engines.spark.storage.column_names import map_in_arrow
from penstock.engines.spark.storage.row_files import RowFile, Slice

_WRITTEN = "file string, rows bigint, bytes bigint"


class Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, df: DataFrame, key: str) -> list[RowFile]:
        return write_rows(df, self._folder)

    def shares(self, files: Sequence[RowFile], replicas: int) -> list[list[Slice]]:
        return row_files.shares(files, 0, sum(file.rows for file in files), replicas)

    def read(self, slices: Iterable[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return row_files.read(slices, schema)

    def discard(self, files: Sequence[RowFile]) -> None:
        self.delete(files)

    def delete(self, files: Sequence[RowFile]) -> None:
        for file in files:
            Path(file.path).unlink(missing_ok=True)

    def check(self) -> None:
        """A disk is always there."""

    def drop(self) -> None:
        """They lie in the channel's own folder, and go with it."""


def write_rows(df: DataFrame, folder: Path, suffix: str = "arrow") -> list[RowFile]:
    """Runs the batch: every task writes one file and reports it; only the reports of successful tasks count."""
    target = str(folder)

    def write(batches: Any) -> Any:
        path = Path(target) / f"{uuid4().hex}.{suffix}"
        rows, writer = 0, None
        for batch in batches:
            if writer is None:
                writer = _writer(path, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
            yield pa.RecordBatch.from_pydict({"file": [str(path)], "rows": [rows], "bytes": [path.stat().st_size]})

    return [RowFile(row.file, row.rows, row.bytes) for row in map_in_arrow(df, write, _WRITTEN).collect()]


def _writer(path: Path, schema: pa.Schema) -> Any:
    if path.suffix == ".arrow":
        return pa.ipc.new_file(str(path), schema)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(str(path), schema)
