"""Sources with numbered rows: replayed files, preloaded backlogs and generators. The offset is {"row": n}."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from penstock.dataflow.code_location import written_at
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.function_errors import user_function_error
from penstock.engines.pace import Pace
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions, StreamReader, data_source, open_stream
from penstock.engines.spark.reading.shares import range_bounds
from penstock.engines.spark.sources.contract import SampleSize
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.engines.spark.storage.row_conversion import batch_from_columns, batch_from_rows
from penstock.engines.spark.storage.row_files import arrow_schema
from penstock.engines.spark.storage.serialisation import check_serialisable

NumberedRows = Callable[[int, int], Iterator[pa.RecordBatch]]  # the rows with numbers from start to stop
_GENERATED_PER_BATCH = 10_000
_MAX_APPEND_TIMES = 64  # per range; the rate between two of them is even enough for any quantile


class PaceFile:
    """The pace of a source, shared with the processes in which Spark asks for offsets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._pace: Pace | None = None

    def load(self) -> Pace:
        stat = self._path.stat()
        version = (stat.st_mtime_ns, stat.st_ino)
        if self._pace is None or self._version != version:
            self._pace = msgspec.json.decode(self._path.read_bytes(), type=Pace)
            self._version = version
        return self._pace

    def save(self, pace: Pace) -> None:
        write_atomically(self._path, msgspec.json.encode(pace))

    def exists(self) -> bool:
        return self._path.exists()


class PacedSource:
    def __init__(self, name: str, folder: Path, schema: StructType, rows: NumberedRows, pace: Pace) -> None:
        """`pace` applies to a new run; a resumed run continues at the pace in its folder. The clock waits."""
        self._name = name
        self._schema = schema
        self._rows = rows
        self._count = pace.rows
        self._pace_path = folder / f"{name}.pace.json"
        self._pace = PaceFile(self._pace_path)
        if not self._pace.exists():
            self._pace.save(pace.waiting(row=0))

    def source_class(self) -> type[DataSource]:
        return _paced_source(self._name, self._schema, self._rows, self._pace_path)

    def read(self, spark: SparkSession, options: ReaderOptions) -> DataFrame:
        return open_stream(spark, self.source_class(), options)

    def first(self) -> Offset:
        return {"row": 0}

    def available(self) -> Offset:
        return {"row": self._pace.load().available(time.time())}

    def rows_between(self, start: Offset, end: Offset) -> int:
        return end["row"] - start["row"]

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]]:
        pace = self._pace.load()
        low, high = start["row"], end["row"]
        parts = min(_MAX_APPEND_TIMES, high - low)
        bounds = [low + (high - low) * part // parts for part in range(parts + 1)] if parts else []
        return [((pace.appended_at(a) + pace.appended_at(b - 1)) / 2, b - a) for a, b in itertools.pairwise(bounds)]

    def sample_size(self, rows: int) -> SampleSize:
        count = self._pace.load().rows
        batches = list(self._rows(0, rows if count is None else min(rows, count)))
        return SampleSize(sum(batch.nbytes for batch in batches), sum(batch.num_rows for batch in batches))

    def resume(self, read_up_to: Offset) -> None:
        """Prepare to continue at the last rate, up to the number of rows that is declared now."""
        waiting = self._pace.load().waiting(row=read_up_to["row"])
        self._pace.save(msgspec.structs.replace(waiting, rows=self._count))

    def start_clock(self) -> None:
        self._pace.save(self._pace.load().started(at_s=time.time()))

    def set_rate(self, rows_per_s: float) -> None:
        pace = self._pace.load()
        if pace.legs[-1].rows_per_s is None:
            raise PenstockError(
                f"source '{self._name}' is a preloaded backlog: all its rows exist already, so it has no rate"
            )
        self._pace.save(pace.changed(at_s=time.time(), rows_per_s=rows_per_s))

    def has_ended(self, at: Offset) -> bool:
        rows = self._pace.load().rows
        return rows is not None and at["row"] >= rows


class RowRange(InputPartition):
    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop


class PacedReader(StreamReader):
    def __init__(self, options: dict[str, str], rows: NumberedRows, pace: Path) -> None:
        super().__init__(options)
        self._pace = PaceFile(pace)
        self._rows = rows

    def next_offset(self, start: Offset) -> Offset:
        backlog = self._pace.load().available(time.time()) - start["row"]
        if backlog <= 0:
            return start
        rows = min(backlog, self.sizer.limit())
        self.sizer.took(rows, rows_left=rows < backlog)
        return {"row": start["row"] + rows}

    def partitions(self, start: Offset, end: Offset) -> list[RowRange]:
        low = start["row"]
        bounds = range_bounds(end["row"] - low, self.replicas, self.shares)
        return [RowRange(low + first, low + stop) for first, stop in itertools.pairwise(bounds)]

    def batches(self, partition: RowRange) -> Iterator[pa.RecordBatch]:
        return self._rows(partition.start, partition.stop)


def generated_rows(name: str, function: Callable[[int], Any], schema: StructType) -> NumberedRows:
    """Return rows that a user's function makes from their numbers."""
    check_serialisable(f"source '{name}'", function)
    arrow = arrow_schema(schema)

    def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for low in range(start, stop, _GENERATED_PER_BATCH):
            made: list[Any] = []
            try:
                made.extend(map(function, range(low, min(low + _GENERATED_PER_BATCH, stop))))
            except Exception as error:
                raise user_function_error(f"source '{name}'", function, error, number=low + len(made)) from error
            yield batch_from_rows(made, arrow, f"the function of source '{name}'{written_at(function)}")

    return rows


def vectorised_rows(name: str, function: Callable[[Any], Any], schema: StructType) -> NumberedRows:
    """Return rows that a user's function makes from arrays of row numbers."""
    check_serialisable(f"source '{name}'", function)
    arrow = arrow_schema(schema)

    def rows(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for low in range(start, stop, _GENERATED_PER_BATCH):
            numbers = np.arange(low, min(low + _GENERATED_PER_BATCH, stop), dtype=np.int64)
            yield batch_from_columns(function(numbers), len(numbers), arrow, f"the function of source '{name}'")

    return rows


def _paced_source(name: str, schema: StructType, rows: NumberedRows, pace: Path) -> type[DataSource]:
    return data_source(f"penstock_source_{name}", schema, lambda options: PacedReader(options, rows, pace))
