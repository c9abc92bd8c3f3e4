"""The stream reader of a channel."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructField, StructType, TimestampType

from penstock.engines.spark.channels.contract import RowStore
from penstock.engines.spark.channels.log import Log
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import StreamReader, data_source
from penstock.engines.spark.storage.row_files import RowSlice, arrow_schema, cast_batch

WATERMARK = "__penstock_watermark"  # a column that holds the producer's watermark; null in all rows but watermark rows


class ChannelPartition(InputPartition):
    """Rows that one task reads, and the producer's watermark, which becomes one more row."""

    def __init__(self, slices: list[RowSlice]) -> None:
        self.slices = slices
        self.watermark_ms: int | None = None


class ChannelReader(StreamReader):
    """The offset is {"entry": n}: the number of the next log entry."""

    def __init__(
        self, options: dict[str, str], folder: Path, schema: pa.Schema, store: RowStore, with_watermark: bool
    ) -> None:
        super().__init__(options)
        self._log = Log(folder)
        self._schema = schema
        self._store = store
        self._with_watermark = with_watermark

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
        partitions = [ChannelPartition(part) for part in self._store.split(files, self.replicas, self.shares)]
        if self._with_watermark:
            watermarks = [entry.watermark_ms for entry in entries if entry.watermark_ms is not None]
            partitions[0].watermark_ms = max(watermarks, default=None)
        return partitions

    def batches(self, partition: ChannelPartition) -> Iterator[pa.RecordBatch]:
        rows = pa.schema([field for field in self._schema if field.name != WATERMARK])
        for batch in self._store.read(partition.slices, rows):
            if self._with_watermark:
                empty = pa.nulls(batch.num_rows, self._schema.field(WATERMARK).type)
                batch = pa.RecordBatch.from_arrays([*batch.columns, empty], schema=self._schema)
            yield batch
        if partition.watermark_ms is not None:
            watermark = datetime.datetime.fromtimestamp(partition.watermark_ms / 1000, datetime.UTC)
            row = pa.RecordBatch.from_pylist([{WATERMARK: watermark}], schema=self._schema)
            yield cast_batch(row, self._schema)


def channel_source(folder: Path, schema: StructType, store: RowStore, with_watermark: bool) -> type[DataSource]:
    """Return a data source for the rows of a channel."""
    nullable = StructType([StructField(field.name, field.dataType, True) for field in schema])
    if with_watermark:
        nullable = nullable.add(WATERMARK, TimestampType())
    arrow = arrow_schema(nullable)

    def create_reader(options: dict[str, str]) -> ChannelReader:
        return ChannelReader(options, folder, arrow, store, with_watermark)

    name = f"penstock_channel_{folder.name}{'_with_watermark' * with_watermark}"
    return data_source(name, nullable, create_reader)
