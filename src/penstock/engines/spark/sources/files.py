"""Files that appear under a glob, each read once in the order of appearance. The offset is {"file": n}.

A ledger in the run's directory gives each file its number when it is first seen, so that a number means the same file
for ever. Files are looked for in the process in which Spark asks for offsets; only one query reads a source at a time.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.compile.clocks import ReadingTime
from penstock.engines.spark.reading.data_source import data_source
from penstock.engines.spark.reading.gate import Gate, Tick, load_start
from penstock.engines.spark.sources.contract import Offset, Reading
from penstock.engines.spark.sources.file_rows import FileRows

FILES_A_BATCH = 64


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    at_s: float  # when the file was last written
    bytes: int


class Ledger:
    """One JSON line a file; a line that a crash cut short is not a line and is written again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files: list[Seen] = []
        self._known: set[str] = set()
        self._read = 0

    def refresh(self) -> list[Seen]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    self._note(msgspec.json.decode(line, type=Seen))
        return self.files

    def look(self, pattern: str) -> list[Seen]:
        """Takes in the files that have appeared since."""
        self.refresh()
        fresh = [Path(path) for path in glob.glob(pattern, recursive=True) if path not in self._known]  # noqa: PTH207
        found = [
            Seen(path=str(path), at_s=stat.st_mtime, bytes=stat.st_size)
            for path in fresh
            if _counts(path) and (stat := path.stat())
        ]
        if found:
            with self._path.open("r+b" if self._path.exists() else "w+b") as file:
                file.seek(self._read)
                file.truncate()
                for seen in sorted(found, key=lambda one: (one.at_s, one.path)):
                    file.write(msgspec.json.encode(seen) + b"\n")
            self.refresh()
        return self.files

    def _note(self, seen: Seen) -> None:
        self.files.append(seen)
        self._known.add(str(Path(seen.path).absolute()))


def _counts(path: Path) -> bool:
    """Not what is being written, nor what Spark leaves beside its files."""
    return not path.name.startswith((".", "_")) and path.is_file()


class FileStreamSource:
    def __init__(self, folder: Path, schema: StructType, pattern: str, form: FileRows) -> None:
        self._name = form.source
        self._schema = schema
        self._pattern = pattern
        self._form = form
        self._path = str(folder / f"{form.source}.ledger.jsonl")
        self._ledger = Ledger(Path(self._path))

    def read(self, spark: SparkSession, how: Reading) -> DataFrame:
        source = _source_class(self._schema, self._pattern, self._form, self._path)
        spark.dataSource.register(source)
        return spark.readStream.format(source.name()).name(how.name).options(**how.options()).load()

    def first(self) -> Offset:
        return {"file": 0}

    def available(self) -> Offset:
        return {"file": len(self._ledger.refresh())}

    def rows_between(self, start: Offset, end: Offset) -> int | None:
        return 0 if start == end else None  # nobody has counted the rows of files not yet read

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]] | None:
        """By file, each weighing the same: rows are not counted by file."""
        files = self._ledger.refresh()[start["file"] : end["file"]]
        return [(seen.at_s, 1) for seen in files]

    def size_of(self, rows: int) -> tuple[int, int]:
        size = count = 0
        for seen in self._ledger.look(self._pattern):
            for batch in self._form.of(seen.path):
                size, count = size + batch.nbytes, count + batch.num_rows
                if count >= rows:
                    return size, count
        return size, count

    def resume(self, read_up_to: Offset) -> None:
        """Files wait for as long as it takes."""

    def set_rate(self, rows_per_s: float) -> None:
        raise PenstockError(f"source '{self._name}' reads files as they appear: it has no rate to change")

    def ended(self, at: Offset) -> bool:
        appeared = [path for path in glob.glob(self._pattern, recursive=True) if _counts(Path(path))]  # noqa: PTH207
        return at["file"] >= len(self._ledger.refresh()) >= len(appeared)


class Share(InputPartition):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths


class FileStreamReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str], pattern: str, form: FileRows, ledger: str) -> None:
        self._gate = Gate(options["run"], options["query"], int(options["opens_at"]))
        self._ledger = Ledger(Path(ledger))
        self._where = (options["run"], options["query"], options["name"])
        self._tick = Tick(options["tick"])
        self._replicas = int(options["replicas"])
        self._pattern = pattern
        self._form = form
        self._looked_at = 0.0
        self._time = ReadingTime(Path(options["timings"]))

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        return load_start(*self._where)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._gate.closed():
            return start
        if time.monotonic() - self._looked_at > 0.1:  # Spark asks every 10 ms when idle; a look lists a folder
            self._ledger.look(self._pattern)
            self._looked_at = time.monotonic()
        return self._tick.on({"file": min(len(self._ledger.files), start["file"] + FILES_A_BATCH)})

    def partitions(self, start: Offset, end: Offset) -> list[Share]:
        paths = [seen.path for seen in self._ledger.refresh()[start["file"] : end["file"]]]
        return [Share(paths[part :: self._replicas]) for part in range(self._replicas)]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        made = (batch for path in partition.paths for batch in self._form.of(path))
        return self._time.over(made)


def _source_class(schema: StructType, pattern: str, form: FileRows, ledger: str) -> type[DataSource]:
    def reader(options: dict[str, str]) -> FileStreamReader:
        return FileStreamReader(options, pattern, form, ledger)

    return data_source(f"penstock_source_{form.source}", schema, reader)
