"""The rows of one file, in Arrow batches with the schema's columns and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.dataflow.errors import DataflowError
from penstock.engines.spark.rowfiles import conformed

_ROWS_A_BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """How the files of a source are written. It travels to Spark's workers."""

    source: str
    format: str
    header: bool
    schema: pa.Schema

    def of(self, path: str) -> Iterator[pa.RecordBatch]:
        """An empty file has no rows, whatever its format: so one that cannot be read may be replaced by one."""
        try:
            if Path(path).stat().st_size:
                yield from self._batches(path)
        except FileNotFoundError:
            raise DataflowError(
                f"source '{self.source}': file '{path}' is gone and has not been read; put it back, or an empty file "
                "in its place to go on without its rows"
            ) from None
        except (pa.ArrowException, UnicodeDecodeError, KeyError, OSError) as error:
            raise DataflowError(
                f"source '{self.source}': file '{path}' does not read as {self.format} with columns "
                f"{', '.join(self.schema.names)}: {' '.join(str(error).split())}; mend it, or put an empty file in its "
                "place to go on without its rows"
            ) from None

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        if self.format == "text":
            yield from _lines(path, self.schema)
            return
        table = {"csv": self._csv, "json": self._json, "parquet": _parquet}[self.format](path)
        for batch in table.select(self.schema.names).to_batches(max_chunksize=_ROWS_A_BATCH):
            yield conformed(batch, self.schema)

    def _csv(self, path: str) -> pa.Table:
        try:
            return _read_csv(path, self.schema, self.header)
        except pa.ArrowInvalid as error:
            if "expected a zone offset" not in str(error):
                raise
            return _read_csv(path, _without_zones(self.schema), self.header)

    def _json(self, path: str) -> pa.Table:
        import pyarrow.json

        return pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=self.schema))


def _read_csv(path: str, schema: pa.Schema, header: bool) -> pa.Table:
    import pyarrow.csv

    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=None if header else schema.names),
        convert_options=pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names),
    )


def _without_zones(schema: pa.Schema) -> pa.Schema:
    """Times as they are written without a zone; made to conform later, they are UTC."""
    return pa.schema(
        [field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field for field in schema]
    )


def _parquet(path: str) -> pa.Table:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path)


def _lines(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    lines: list[str] = []
    with Path(path).open(encoding="utf-8", newline="\n") as file:
        for line in file:
            lines.append(line.rstrip("\r\n"))
            if len(lines) == _ROWS_A_BATCH:
                yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=schema)
                lines = []
    if lines:
        yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=schema)
