"""Replayed files: copied once to Arrow files in the run directory, where every row is reached quickly by its number."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.dataflow.errors import DataflowError
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.paced import NumberedRows
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.engines.spark.storage.row_files import RowFile, read_slices, slice_files, write_row_file


def replayed_rows(pattern: str, file_rows: FileRows, folder: Path, repeat: int) -> tuple[NumberedRows, int]:
    """Return the rows of all matching files in the order of their paths, `repeat` times, and the number of rows.

    Raises DataflowError if no file matches or the files have no rows.
    """
    index = folder / f"{file_rows.source}.files.json"
    if index.exists():
        files = msgspec.json.decode(index.read_bytes(), type=list[RowFile])
    else:
        files = _copy(pattern, file_rows, folder / file_rows.source)
        write_atomically(index, msgspec.json.encode(files))
    total = sum(file.rows for file in files)

    def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        while start < stop:
            within = start % total
            count = min(stop - start, total - within)
            yield from read_slices(slice_files(files, within, within + count), file_rows.schema)
            start += count

    return rows, total * repeat


def _copy(pattern: str, file_rows: FileRows, target: Path) -> list[RowFile]:
    name = file_rows.source
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
    if not paths:
        raise DataflowError(f"source '{name}' replays '{pattern}', which matches no file; check the path")
    target.mkdir(parents=True, exist_ok=True)
    files = [
        write_row_file(target / f"{number:06d}.arrow", file_rows.of(path), file_rows.schema)
        for number, path in enumerate(paths)
    ]
    if not sum(file.rows for file in files):
        raise DataflowError(f"source '{name}' replays '{pattern}', but the matching files have no rows")
    return files
