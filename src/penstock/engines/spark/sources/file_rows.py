"""Reads the rows of one file as Arrow batches with the columns and types of a schema."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.dataflow.errors import DataflowError
from penstock.engines.spark.sources.json_rows import decode_timestamp, row_type
from penstock.engines.spark.storage.row_files import cast_batch

_ROWS_PER_BATCH = 10_000
_UNREADABLE = (pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError, KeyError, OverflowError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The format and schema of a source's files. Spark pickles it to its workers."""

    source: str
    format: str
    header: bool
    schema: pa.Schema

    def __post_init__(self) -> None:
        if self.format == "json":
            row_type(self.schema)  # refuses a type that JSON cannot represent before anything runs

    def of(self, path: str) -> Iterator[pa.RecordBatch]:
        """Return the rows of a file. An empty file has no rows in every format, so it can replace an unreadable file.

        Raises DataflowError if the file is missing or does not match the schema.
        """
        try:
            if Path(path).stat().st_size:
                yield from self._batches(path)
        except FileNotFoundError:
            raise DataflowError(
                f"source '{self.source}': file '{path}' was deleted before it was read; restore it, or create an "
                "empty file in its place to continue without its rows"
            ) from None
        except _UNREADABLE as error:
            raise DataflowError(
                f"source '{self.source}': file '{path}' cannot be read as {self.format} with columns "
                f"{', '.join(self.schema.names)}: {' '.join(str(error).split())}; correct it, or replace it by an "
                "empty file to continue without its rows"
            ) from None

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        if self.format == "text":
            yield from _lines(path, self.schema)
            return
        if self.format == "json":
            yield from _objects(path, self.schema)
            return
        table = self._csv(path) if self.format == "csv" else _parquet(path)
        for batch in table.select(self.schema.names).to_batches(max_chunksize=_ROWS_PER_BATCH):
            yield cast_batch(batch, self.schema)

    def _csv(self, path: str) -> pa.Table:
        try:
            return _read_csv(path, self.schema, self.header)
        except pa.ArrowInvalid as error:
            if "expected a zone offset" not in str(error):
                raise
            return _read_csv(path, _without_zones(self.schema), self.header)


def _read_csv(path: str, schema: pa.Schema, header: bool) -> pa.Table:
    import pyarrow.csv

    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=None if header else schema.names),
        # Without this option, Arrow ends a row at a quoted line break that falls on the border of two blocks.
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names),
    )


def _without_zones(schema: pa.Schema) -> pa.Schema:
    """Return the schema with timestamps without time zones. They are cast to UTC later."""
    return pa.schema(
        [field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field for field in schema]
    )


def _parquet(path: str) -> pa.Table:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path)


def _lines(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    lines: list[str] = []
    with Path(path).open(encoding="utf-8-sig", newline="\n") as file:
        for line in file:
            lines.append(line.rstrip("\r\n"))
            if len(lines) == _ROWS_PER_BATCH:
                yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=schema)
                lines = []
    if lines:
        yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=schema)


def _objects(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read one JSON object per line. Arrow's own reader supports neither dates nor maps nor unknown columns."""
    decode = msgspec.json.Decoder(row_type(schema), dec_hook=decode_timestamp).decode
    rows: list[Any] = []
    with pa.input_stream(path) as packed, io.BufferedReader(packed) as file:  # decompresses by file suffix
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            try:
                rows.append(decode(line))
            except (msgspec.DecodeError, ValueError) as error:
                raise msgspec.DecodeError(f"line {number}: {error}") from None
            if len(rows) == _ROWS_PER_BATCH:
                yield pa.RecordBatch.from_pylist(rows, schema=schema)
                rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)
