"""Replayed files: read once into Arrow files of the run's directory, where any row is cheap to reach by number."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.dataflow.errors import DataflowError
from penstock.engines.spark.files import write_whole
from penstock.engines.spark.rowfiles import RowFile, arrow_schema, conformed, read, slices, write
from penstock.engines.spark.sources.numbered import Rows

_ROWS_A_BATCH = 10_000


def replayed(name: str, pattern: str, format: str, schema: StructType, folder: Path, repeat: int) -> tuple[Rows, int]:
    """The rows of all matching files in order of path, `repeat` times over, and how many there are."""
    arrow = arrow_schema(schema)
    index = folder / f"{name}.files.json"
    if index.exists():
        files = msgspec.json.decode(index.read_bytes(), type=list[RowFile])
    else:
        files = _taken_in(name, pattern, format, arrow, folder)
        write_whole(index, msgspec.json.encode(files))
    once = sum(file.rows for file in files)

    def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        while start < stop:
            within = start % once
            count = min(stop - start, once - within)
            yield from read(slices(files, within, within + count), arrow)
            start += count

    return rows, once * repeat


def _taken_in(name: str, pattern: str, format: str, arrow: pa.Schema, folder: Path) -> list[RowFile]:
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
    if not paths:
        raise DataflowError(f"source '{name}' replays '{pattern}', which matches no file; check the path")
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for number, path in enumerate(paths):
        try:
            files.append(write(target / f"{number:06d}.arrow", batches_of(path, format, arrow), arrow))
        except (pa.ArrowException, UnicodeDecodeError, KeyError) as error:
            raise DataflowError(
                f"source '{name}': file '{path}' does not read as {format} with columns "
                f"{', '.join(field.name for field in arrow)}: {error}"
            ) from None
    if not sum(file.rows for file in files):
        raise DataflowError(f"source '{name}' replays '{pattern}', whose files hold no rows")
    return files


def batches_of(path: str, format: str, arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file, with the schema's columns and types."""
    if format == "text":
        yield from _lines(path, arrow)
        return
    if format == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
    elif format == "csv":
        import pyarrow.csv

        convert = pyarrow.csv.ConvertOptions(column_types=arrow, include_columns=arrow.names)
        table = pyarrow.csv.read_csv(path, convert_options=convert)
    else:
        import pyarrow.json

        table = pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=arrow))
    for batch in table.select(arrow.names).to_batches(max_chunksize=_ROWS_A_BATCH):
        yield conformed(batch, arrow)


def _lines(path: str, arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    lines: list[str] = []
    with Path(path).open(encoding="utf-8", newline="\n") as file:
        for line in file:
            lines.append(line.rstrip("\r\n"))
            if len(lines) == _ROWS_A_BATCH:
                yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=arrow)
                lines = []
    if lines:
        yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=arrow)
