"""Rows that have a number: replayed files, preloaded backlogs and generators. Their offset is {"row": n}."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.dataflow.errors import PenstockError
from penstock.engines.pace import Pace
from penstock.engines.spark.compile.clocks import ReadingTime
from penstock.engines.spark.reading.batch_size import BatchSizer
from penstock.engines.spark.reading.data_source import data_source
from penstock.engines.spark.reading.gate import Gate, Tick, load_start
from penstock.engines.spark.sources.contract import Offset, Reading
from penstock.engines.spark.storage.files import write_whole
from penstock.engines.spark.storage.row_conversion import of_any
from penstock.engines.spark.storage.row_files import arrow_schema

Rows = Callable[[int, int], Iterator[pa.RecordBatch]]  # the rows numbered start..stop


class PaceFile:
    """The pace of a source, shared with the processes in which Spark asks for offsets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._pace: Pace | None = None

    def load(self) -> Pace:
        stat = self._path.stat()
        if self._pace is None or self._seen != (stat.st_mtime_ns, stat.st_ino):
            self._pace = msgspec.json.decode(self._path.read_bytes(), type=Pace)
            self._seen = (stat.st_mtime_ns, stat.st_ino)
        return self._pace

    def save(self, pace: Pace) -> None:
        write_whole(self._path, msgspec.json.encode(pace))

    def exists(self) -> bool:
        return self._path.exists()


class PacedSource:
    def __init__(self, name: str, folder: Path, schema: StructType, rows: Rows, pace: Pace) -> None:
        self._name = name
        self._schema = schema
        self._rows = rows
        self._count = pace.rows
        self._pace = PaceFile(folder / f"{name}.pace.json")
        if not self._pace.exists():
            self._pace.save(pace)
        self._path = str(folder / f"{name}.pace.json")

    def source_class(self) -> type[DataSource]:
        return _source_class(self._name, self._schema, self._rows, self._path)

    def read(self, spark: SparkSession, how: Reading) -> DataFrame:
        source = self.source_class()
        spark.dataSource.register(source)
        return spark.readStream.format(source.name()).name(how.name).options(**how.options()).load()

    def first(self) -> Offset:
        return {"row": 0}

    def available(self) -> Offset:
        return {"row": self._pace.load().available(time.time())}

    def rows_between(self, start: Offset, end: Offset) -> int:
        return end["row"] - start["row"]

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]]:
        """A range has up to 64 moments: within one the pace is even enough for any quantile."""
        pace = self._pace.load()
        low, high = start["row"], end["row"]
        parts = min(64, high - low)
        bounds = [low + (high - low) * part // parts for part in range(parts + 1)] if parts else []
        return [((pace.appended_at(a) + pace.appended_at(b - 1)) / 2, b - a) for a, b in itertools.pairwise(bounds)]

    def size_of(self, rows: int) -> tuple[int, int]:
        """Bytes of its first rows, and how many there were."""
        known = self._pace.load().rows
        batches = list(self._rows(0, rows if known is None else min(rows, known)))
        return sum(one.nbytes for one in batches), sum(one.num_rows for one in batches)

    def resume(self, read_up_to: Offset) -> None:
        """At the rate that it had, up to as many rows as are declared now."""
        resumed = self._pace.load().resumed(at_s=time.time(), row=read_up_to["row"])
        self._pace.save(msgspec.structs.replace(resumed, rows=self._count))

    def set_rate(self, rows_per_s: float) -> None:
        pace = self._pace.load()
        if pace.legs[-1].rows_per_s is None:
            raise PenstockError(f"source '{self._name}' is a preloaded backlog: all its rows are there, at no rate")
        self._pace.save(pace.changed(at_s=time.time(), rows_per_s=rows_per_s))

    def ended(self, at: Offset) -> bool:
        rows = self._pace.load().rows
        return rows is not None and at["row"] >= rows


class Range(InputPartition):
    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop


class PacedReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str], rows: Rows, pace: str) -> None:
        self._gate = Gate(options["run"], options["query"], int(options["opens_at"]))
        self._pace = PaceFile(Path(pace))
        self._where = (options["run"], options["query"], options["name"])
        self._tick = Tick(options["tick"])
        self._replicas = int(options["replicas"])
        self._sizer = BatchSizer.of(options)
        self._rows = rows
        self._time = ReadingTime(Path(options["timings"]))

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        return load_start(*self._where)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._gate.closed():
            return start
        backlog = self._pace.load().available(time.time()) - start["row"]
        if backlog <= 0:
            return self._tick.on({"row": start["row"]})
        rows = min(backlog, self._sizer.room())
        self._sizer.gave(rows, left=rows < backlog)
        return self._tick.on({"row": start["row"] + rows})

    def partitions(self, start: Offset, end: Offset) -> list[Range]:
        low, rows, k = start["row"], end["row"] - start["row"], self._replicas
        return [Range(low + rows * part // k, low + rows * (part + 1) // k) for part in range(k)]

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        return self._time.over(self._rows(partition.start, partition.stop))


def generated(name: str, fn: Callable[[int], Any], schema: StructType) -> Rows:
    """Rows made from their number by a function of the user's."""
    arrow = arrow_schema(schema)

    def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for low in range(start, stop, 10_000):
            made = [fn(number) for number in range(low, min(low + 10_000, stop))]
            yield of_any(made, arrow, f"the function of source '{name}'")

    return rows


def _source_class(name: str, schema: StructType, rows: Rows, pace: str) -> type[DataSource]:
    return data_source(f"penstock_source_{name}", schema, lambda options: PacedReader(options, rows, pace))
