"""A sink for results in complete mode: one file that each batch replaces atomically."""

from __future__ import annotations

import contextlib
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.engines.spark.sinks.folder_output import WRITING, FolderOutput
from penstock.engines.spark.storage.row_files import RowFile, write_dataframe

FILE_STEM = "complete"


class LatestResultSink:
    """Writes the whole result to one file, so that a reader sees the result of one batch and never a mixture.

    Tasks write parts in parallel, and the driver joins them. Their order is that of the result, which may be sorted.
    """

    def __init__(self, folder: Path, stem: str, suffix: str, output: FolderOutput | None = None) -> None:
        """`output` refuses to replace the file in a folder that another run has taken over."""
        self._target = folder / f"{stem}.{suffix}"
        self._suffix = suffix
        self._output = output
        self._temporary = folder / WRITING
        self._temporary.mkdir(parents=True, exist_ok=True)

    def __call__(self, df: DataFrame, key: str) -> int:
        parts = write_dataframe(df, self._temporary, self._suffix)
        joined = self._temporary / f"{uuid4().hex}.{self._suffix}"
        if parts:
            self._join(parts, joined)
        with self._output.owned() if self._output is not None else contextlib.nullcontext():
            if parts:
                joined.replace(self._target)
            else:
                self._target.unlink(missing_ok=True)
        for part in parts:
            Path(part.path).unlink(missing_ok=True)
        return sum(part.rows for part in parts)

    def _join(self, parts: list[RowFile], target: Path) -> None:
        if self._suffix == "arrow":
            with pa.memory_map(parts[0].path) as source, pa.ipc.open_file(source) as first:
                schema = first.schema
            with pa.ipc.new_file(str(target), schema) as writer:
                for part in parts:
                    with pa.memory_map(part.path) as source, pa.ipc.open_file(source) as file:
                        for index in range(file.num_record_batches):
                            writer.write_batch(file.get_batch(index))
            return
        import pyarrow.parquet as parquet

        with parquet.ParquetWriter(str(target), parquet.read_schema(parts[0].path)) as writer:
            for part in parts:
                for batch in parquet.ParquetFile(part.path).iter_batches():
                    writer.write_batch(batch)
