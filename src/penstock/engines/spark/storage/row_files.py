"""Rows in Arrow files, addressed by number: what channels and replayed sources are made of.

Arrow's IPC file format is memory-mapped and sliced without copying, so any range of rows is as cheap as any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


class RowFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Slice:
    """`rows` rows of a file, from row `skip` on."""

    path: str
    skip: int
    rows: int


def slices(files: Sequence[RowFile], start: int, stop: int) -> list[Slice]:
    """Where rows number start..stop of these files, laid end to end, are found.

    >>> files = [RowFile("a", 3, 0), RowFile("b", 5, 0)]
    >>> slices(files, 2, 5)
    [Slice(path='a', skip=2, rows=1), Slice(path='b', skip=0, rows=2)]
    """
    found, begin = [], 0
    for file in files:
        low, high = max(start, begin), min(stop, begin + file.rows)
        if low < high:
            found.append(Slice(file.path, low - begin, high - low))
        begin += file.rows
    return found


def shares(files: Sequence[RowFile], start: int, stop: int, replicas: int) -> list[list[Slice]]:
    """Rows start..stop in exactly `replicas` shares of equal size, give or take a row."""
    rows = stop - start
    bounds = [start + rows * part // replicas for part in range(replicas + 1)]
    return [slices(files, low, high) for low, high in itertools.pairwise(bounds)]


def read(parts: Iterable[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for part in parts:
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
                yield conformed(piece, schema)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns and types: Spark writes time zones by other names than it reads them."""
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
    """Spark's schema in Arrow's types. A timestamp is a moment, which Arrow counts in UTC wherever the session is."""
    return to_arrow_schema(schema, timezone="UTC")


def write(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> RowFile:
    rows = 0
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in batches:
            writer.write_batch(conformed(batch, schema))
            rows += batch.num_rows
    return RowFile(str(path), rows, path.stat().st_size)
