"""Files that appear under a glob pattern, each read once in the order of appearance. The offset is {"file": n}.

An index in the run directory numbers each file when it is discovered, so that a number always means the same file. The
process that answers Spark's questions about offsets discovers files; only one query reads a source at a time.
"""

from __future__ import annotations

import glob
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions, StreamReader, data_source, open_stream
from penstock.engines.spark.reading.shares import range_bounds
from penstock.engines.spark.sources.contract import SampleSize
from penstock.engines.spark.sources.file_rows import FileRows

FILES_PER_BATCH = 64
_DISCOVERY_INTERVAL_S = 0.1  # Spark asks every 10 ms when idle, and a discovery lists a folder


class DiscoveredFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    at_s: float  # when the file was last written
    bytes: int


class FileIndex:
    """One JSON line per file. A line that a crash left incomplete is ignored and overwritten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files: list[DiscoveredFile] = []
        self._paths: set[str] = set()
        self._read_bytes = 0

    def refresh(self) -> list[DiscoveredFile]:
        """Read the lines that another process has added, and return all files."""
        if self._path.exists():
            with self._path.open("rb") as index:
                index.seek(self._read_bytes)
                for line in index:
                    if not line.endswith(b"\n"):
                        break
                    self._read_bytes += len(line)
                    file = msgspec.json.decode(line, type=DiscoveredFile)
                    self.files.append(file)
                    self._paths.add(str(Path(file.path).absolute()))
        return self.files

    def discover(self, pattern: str) -> list[DiscoveredFile]:
        """Add the files that have appeared since the last call, and return all files."""
        self.refresh()
        added = [
            DiscoveredFile(path=str(path), at_s=stat.st_mtime, bytes=stat.st_size)
            for path in map(Path, glob.glob(pattern, recursive=True))  # noqa: PTH207
            if str(path) not in self._paths and _is_data_file(path) and (stat := path.stat())
        ]
        if added:
            with self._path.open("r+b" if self._path.exists() else "w+b") as index:
                index.seek(self._read_bytes)
                index.truncate()
                for file in sorted(added, key=lambda file: (file.at_s, file.path)):
                    index.write(msgspec.json.encode(file) + b"\n")
            self.refresh()
        return self.files


def _is_data_file(path: Path) -> bool:
    """Return False for hidden files, which may be incomplete, and for files that Spark adds to a folder."""
    return not path.name.startswith((".", "_")) and path.is_file()


class FileStreamSource:
    def __init__(self, folder: Path, schema: StructType, pattern: str, file_rows: FileRows) -> None:
        self._name = file_rows.source
        self._schema = schema
        self._pattern = pattern
        self._file_rows = file_rows
        self._index_path = folder / f"{file_rows.source}.files.jsonl"
        self._index = FileIndex(self._index_path)

    def read(self, spark: SparkSession, options: ReaderOptions) -> DataFrame:
        return open_stream(spark, _file_source(self._schema, self._pattern, self._file_rows, self._index_path), options)

    def first(self) -> Offset:
        return {"file": 0}

    def available(self) -> Offset:
        return {"file": len(self._index.refresh())}

    def rows_between(self, start: Offset, end: Offset) -> int | None:
        return 0 if start == end else None  # the rows of unread files have not been counted

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]] | None:
        """Return one entry per file with equal weights, because rows are not counted by file."""
        return [(file.at_s, 1) for file in self._index.refresh()[start["file"] : end["file"]]]

    def sample_size(self, rows: int) -> SampleSize:
        size = count = 0
        for file in self._index.discover(self._pattern):
            for batch in self._file_rows.of(file.path):
                size, count = size + batch.nbytes, count + batch.num_rows
                if count >= rows:
                    return SampleSize(size, count)
        return SampleSize(size, count)

    def resume(self, read_up_to: Offset) -> None:
        """Do nothing: files stay until they are read."""

    def start_clock(self) -> None:
        """Do nothing: files appear by themselves."""

    def set_rate(self, rows_per_s: float) -> None:
        raise PenstockError(f"source '{self._name}' reads files as they appear: it has no rate that can be changed")

    def has_ended(self, at: Offset) -> bool:
        existing = [path for path in glob.glob(self._pattern, recursive=True) if _is_data_file(Path(path))]  # noqa: PTH207
        return at["file"] >= len(self._index.refresh()) >= len(existing)


class FilePartition(InputPartition):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths


class FileStreamReader(StreamReader):
    """Takes up to `FILES_PER_BATCH` whole files into a batch; their rows are not known before they are read."""

    def __init__(self, options: dict[str, str], pattern: str, file_rows: FileRows, index: Path) -> None:
        super().__init__(options)
        self._index = FileIndex(index)
        self._pattern = pattern
        self._file_rows = file_rows
        self._discovered_at = 0.0

    def next_offset(self, start: Offset) -> Offset:
        if time.monotonic() - self._discovered_at > _DISCOVERY_INTERVAL_S:
            self._index.discover(self._pattern)
            self._discovered_at = time.monotonic()
        return {"file": min(len(self._index.files), start["file"] + FILES_PER_BATCH)}

    def partitions(self, start: Offset, end: Offset) -> list[FilePartition]:
        paths = [file.path for file in self._index.refresh()[start["file"] : end["file"]]]
        if not self.shares:
            return [FilePartition(paths[part :: self.replicas]) for part in range(self.replicas)]
        bounds = range_bounds(len(paths), self.replicas, self.shares)
        return [FilePartition(paths[first:stop]) for first, stop in itertools.pairwise(bounds)]

    def batches(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:
        return (batch for path in partition.paths for batch in self._file_rows.of(path))


def _file_source(schema: StructType, pattern: str, file_rows: FileRows, index: Path) -> type[DataSource]:
    def create_reader(options: dict[str, str]) -> FileStreamReader:
        return FileStreamReader(options, pattern, file_rows, index)

    return data_source(f"penstock_source_{file_rows.source}", schema, create_reader)
