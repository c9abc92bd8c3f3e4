"""The stream reader of a channel."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import BooleanType, StructField, StructType

from penstock.engines.spark.channels.contract import RowStore
from penstock.engines.spark.channels.log import Log
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import StreamReader, data_source
from penstock.engines.spark.storage.row_files import RowSlice, arrow_schema, cast_batch

IS_WATERMARK_ROW = "__penstock_mark"  # a column that is true for rows that only advance the watermark


class ChannelPartition(InputPartition):
    """Rows that one task reads, and event times that the producer has seen, which become one watermark row each."""

    def __init__(self, slices: list[RowSlice]) -> None:
        self.slices = slices
        self.event_times_s: list[float] = []


class ChannelReader(StreamReader):
    """The offset is {"entry": n}: the number of the next log entry."""

    def __init__(
        self, options: dict[str, str], folder: Path, schema: pa.Schema, event_column: str | None, store: RowStore
    ) -> None:
        super().__init__(options)
        self._log = Log(folder)
        self._schema = schema
        self._event_column = event_column
        self._store = store

    def next_offset(self, start: Offset) -> Offset:
        """Take whole entries up to the size of a batch, and at least one if there is any."""
        end = self._log.end()
        if end == start["entry"]:
            return start
        limit, rows, stop = self.sizer.limit(), 0, start["entry"]
        while stop < end:
            more = self._log.entry(stop).rows
            if rows and rows + more > limit:
                break
            rows, stop = rows + more, stop + 1
        self.sizer.took(rows, rows_left=stop < end)
        return {"entry": stop}

    def partitions(self, start: Offset, end: Offset) -> list[ChannelPartition]:
        entries = self._log.entries(start["entry"], end["entry"])
        files = [file for entry in entries for file in entry.files]
        partitions = [ChannelPartition(part) for part in self._store.split(files, self.replicas)]
        if self._event_column is not None:
            times_s = [entry.latest_event_s for entry in entries if entry.latest_event_s is not None]
            partitions[0].event_times_s = [max(times_s)] if times_s else []
        return partitions

    def batches(self, partition: ChannelPartition) -> Iterator[pa.RecordBatch]:
        rows = pa.schema([field for field in self._schema if field.name != IS_WATERMARK_ROW])
        for batch in self._store.read(partition.slices, rows):
            if self._event_column is None:
                yield batch
            else:
                is_watermark_row = pa.array([False] * batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns, is_watermark_row], schema=self._schema)
        for time_s in partition.event_times_s:
            row = self._watermark_row(time_s)
            yield cast_batch(pa.RecordBatch.from_pylist([row], schema=self._schema), self._schema)

    def _watermark_row(self, time_s: float) -> dict[str | None, Any]:
        return {self._event_column: datetime.datetime.fromtimestamp(time_s, datetime.UTC), IS_WATERMARK_ROW: True}


def channel_source(folder: Path, schema: StructType, event_column: str | None, store: RowStore) -> type[DataSource]:
    """Return a data source for the rows of a channel."""
    nullable = StructType([StructField(field.name, field.dataType, True) for field in schema])
    if event_column is not None:
        nullable = nullable.add(IS_WATERMARK_ROW, BooleanType())
    arrow = arrow_schema(nullable)

    def create_reader(options: dict[str, str]) -> ChannelReader:
        return ChannelReader(options, folder, arrow, event_column, store)

    return data_source(f"penstock_channel_{folder.name}", nullable, create_reader)
