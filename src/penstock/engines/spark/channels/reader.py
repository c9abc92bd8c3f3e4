"""How Spark reads a channel: a Python data source that hands out Arrow batches of any range of its rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import BooleanType, StructField, StructType

from penstock.engines.spark.channels.contract import Place
from penstock.engines.spark.channels.log import Log
from penstock.engines.spark.compile.clocks import ReadingTime
from penstock.engines.spark.reading.batch_size import BatchSizer
from penstock.engines.spark.reading.data_source import data_source
from penstock.engines.spark.reading.gate import Gate, Tick, load_start
from penstock.engines.spark.storage.row_files import Slice, arrow_schema, conformed

MARK = "__penstock_mark"


class Share(InputPartition):
    def __init__(self, slices: list[Slice], marks: list[float]) -> None:
        self.slices = slices
        self.marks = marks  # event times that the producer has seen, one dummy row each


class ChannelReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str], schema: pa.Schema, event_column: str | None, place: Place) -> None:
        self._place = place
        self._log = Log(Path(options["folder"]))
        self._gate = Gate(options["run"], options["query"], int(options["opens_at"]))
        self._where = (options["run"], options["query"], options["name"])
        self._tick = Tick(options["tick"])
        self._replicas = int(options["replicas"])
        self._sizer = BatchSizer.of(options)
        self._schema = schema
        self._event_column = event_column
        self._time = ReadingTime(Path(options["timings"]))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names
        return load_start(*self._where)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Whole entries, at least one if there is any, up to what fits a batch."""
        end = self._log.end()
        if self._gate.closed():
            return start
        if end == start["entry"]:
            return self._tick.on({"entry": end})
        room, rows, stop = self._sizer.room(), 0, start["entry"]
        while stop < end:
            more = self._log.entry(stop).rows
            if rows and rows + more > room:
                break
            rows, stop = rows + more, stop + 1
        self._sizer.gave(rows, left=stop < end)
        return self._tick.on({"entry": stop})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Share]:
        entries = self._log.entries(start["entry"], end["entry"])
        files = [file for entry in entries for file in entry.files]
        parts = [Share(part, []) for part in self._place.shares(files, self._replicas)]
        if self._event_column is not None:
            marks = [entry.latest_event_s for entry in entries if entry.latest_event_s is not None]
            parts[0].marks = [max(marks)] if marks else []
        return parts

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        return self._time.over(self._batches(partition))

    def _batches(self, partition: Share) -> Iterator[pa.RecordBatch]:
        rows = pa.schema([field for field in self._schema if field.name != MARK])
        for batch in self._place.read(partition.slices, rows):
            if self._event_column is None:
                yield batch
            else:
                unmarked = pa.array([False] * batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns, unmarked], schema=self._schema)
        for mark in partition.marks:
            yield conformed(pa.RecordBatch.from_pylist([self._marked_row(mark)], schema=self._schema), self._schema)

    def _marked_row(self, mark: float) -> dict[str, Any]:
        moment = datetime.datetime.fromtimestamp(mark, datetime.UTC)
        return {self._event_column: moment, MARK: True}


def source_class(name: str, schema: StructType, event_column: str | None, place: Place) -> type[DataSource]:
    """A data source for rows of this schema."""
    nullable = StructType([StructField(field.name, field.dataType, True) for field in schema])
    if event_column is not None:
        nullable = nullable.add(MARK, BooleanType())
    arrow = arrow_schema(nullable)

    def reader(options: dict[str, str]) -> ChannelReader:
        return ChannelReader(options, arrow, event_column, place)

    return data_source(f"penstock_channel_{name}", nullable, reader)
