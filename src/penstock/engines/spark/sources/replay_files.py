"""Replayed files: read once into Arrow files of the run's directory, where any row is cheap to reach by number."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.dataflow.errors import DataflowError
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.paced import Rows
from penstock.engines.spark.storage.files import write_whole
from penstock.engines.spark.storage.row_files import RowFile, read, slices, write


def replayed(pattern: str, form: FileRows, folder: Path, repeat: int) -> tuple[Rows, int]:
    """The rows of all matching files in order of path, `repeat` times over, and how many there are."""
    index = folder / f"{form.source}.files.json"
    if index.exists():
        files = msgspec.json.decode(index.read_bytes(), type=list[RowFile])
    else:
        files = _taken_in(pattern, form, folder / form.source)
        write_whole(index, msgspec.json.encode(files))
    once = sum(file.rows for file in files)

    def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        while start < stop:
            within = start % once
            count = min(stop - start, once - within)
            yield from read(slices(files, within, within + count), form.schema)
            start += count

    return rows, once * repeat


def _taken_in(pattern: str, form: FileRows, target: Path) -> list[RowFile]:
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
    if not paths:
        raise DataflowError(f"source '{form.source}' replays '{pattern}', which matches no file; check the path")
    target.mkdir(parents=True, exist_ok=True)
    files = [write(target / f"{number:06d}.arrow", form.of(path), form.schema) for number, path in enumerate(paths)]
    if not sum(file.rows for file in files):
        raise DataflowError(f"source '{form.source}' replays '{pattern}', whose files hold no rows")
    return files
