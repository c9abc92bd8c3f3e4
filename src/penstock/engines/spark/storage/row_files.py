"""Rows in Arrow files, addressed by number. Channels and replayed sources are stored in them.

Files in Arrow's IPC format are memory-mapped and sliced without copying, so every range of rows costs the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.engines.spark.storage.column_names import map_in_arrow

FILE_REPORT = "file string, rows bigint, bytes bigint"  # the schema in which tasks report the files that they wrote


class RowFile(msgspec.Struct, frozen=True, array_like=True):
    """A file, or a record in Kafka, that holds rows."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RowSlice:
    """`rows` rows of a file, from row number `skip` on."""

    path: str
    skip: int
    rows: int


def slice_files(files: Sequence[RowFile], start: int, stop: int) -> list[RowSlice]:
    """Return the slices that hold rows `start` to `stop` of these files in sequence.

    >>> files = [RowFile("a", 3, 0), RowFile("b", 5, 0)]
    >>> slice_files(files, 2, 5)
    [RowSlice(path='a', skip=2, rows=1), RowSlice(path='b', skip=0, rows=2)]
    """
    slices, begin = [], 0
    for file in files:
        low, high = max(start, begin), min(stop, begin + file.rows)
        if low < high:
            slices.append(RowSlice(file.path, low - begin, high - low))
        begin += file.rows
    return slices


def split_files(files: Sequence[RowFile], bounds: Sequence[int]) -> list[list[RowSlice]]:
    """Return the rows between each two bounds; rows are numbered in the order of the files."""
    return [slice_files(files, low, high) for low, high in itertools.pairwise(bounds)]


def read_slices(slices: Iterable[RowSlice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the rows of slices of Arrow files, with the columns and types of the schema."""
    for part in slices:
        with pa.memory_map(part.path) as source, pa.ipc.open_file(source) as file:
            skip, left = part.skip, part.rows
            for index in range(file.num_record_batches):
                if left == 0:
                    break
                batch = file.get_batch(index)
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                piece = batch.slice(skip, left)
                skip, left = 0, left - piece.num_rows
                yield cast_batch(piece, schema)


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly these columns and types. Spark writes and reads time zones by different names."""
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        batch = batch.select(schema.names)
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return Spark's schema in Arrow's types. Arrow stores a timestamp in UTC, whatever the session's time zone is."""
    return to_arrow_schema(schema, timezone="UTC")


def write_row_file(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> RowFile:
    rows = 0
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in batches:
            writer.write_batch(cast_batch(batch, schema))
            rows += batch.num_rows
    return RowFile(str(path), rows, path.stat().st_size)


def write_dataframe(df: DataFrame, folder: Path, suffix: str = "arrow") -> list[RowFile]:
    """Run the DataFrame and write one file per task, in Arrow or Parquet format.

    Each attempt of a task writes under a new name, and only successful tasks are reported. A task that Spark runs twice
    leaves an unused file and never a wrong row.
    """
    target = str(folder)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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

    return [RowFile(row.file, row.rows, row.bytes) for row in map_in_arrow(df, write, FILE_REPORT).collect()]


def _writer(path: Path, schema: pa.Schema) -> Any:
    if path.suffix == ".arrow":
        return pa.ipc.new_file(str(path), schema)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(str(path), schema)
