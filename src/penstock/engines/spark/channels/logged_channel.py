"""A channel as a log of appends: the folder `log` holds one small JSON file per append, numbered without gaps.

The creation of a log file is atomic and is the commit of its append. The file lists where the rows are stored. Rows
that are not listed, from a task that ran twice or a batch that a crash interrupted, are never read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from penstock.engines.spark.channels.contract import Append, RowStore
from penstock.engines.spark.channels.log import Entry, Log
from penstock.engines.spark.channels.reader import WATERMARK, channel_source
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions, open_stream
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.engines.spark.storage.schemas import event_time_columns, with_metadata

DESCRIPTION_FILE = "channel.json"


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The Kafka topic that holds the rows of a channel."""

    bootstrap_servers: str
    options: dict[str, str]
    topic: str
    groups: int  # key groups, one per partition
    keys: tuple[str, ...]  # columns; rows with equal keys are in one group


class ChannelDescription(msgspec.Struct, frozen=True, kw_only=True):
    schema: str  # Spark's JSON form of the schema
    kafka: TopicDescription | None = None  # None: the rows are in the channel's folder


class LoggedChannel:
    def __init__(self, folder: Path, store: RowStore) -> None:
        self.folder = folder
        self._store = store
        self._log = Log(folder)
        self.schema = read_description(folder).schema

    @cached_property
    def _fields(self) -> StructType:
        return StructType.fromJson(msgspec.json.decode(self.schema))

    @property
    def has_event_time(self) -> bool:
        return bool(event_time_columns(self._fields))

    def append(self, df: DataFrame, key: str, watermark_ms: Callable[[], int | None] | None = None) -> int:
        files = self._store.write(df, key)
        rows = sum(file.rows for file in files)
        last = self._log.last()
        if last is not None and last.key == key:  # appended before a crash that preceded Spark's own commit
            self._store.discard(files)
            return last.rows
        watermark = watermark_ms() if watermark_ms and self.has_event_time else None
        last_watermark = last.watermark_ms if last else None
        if rows or (watermark is not None and (last_watermark is None or watermark > last_watermark)):
            entry = Entry(
                number=last.number + 1 if last else 0,
                key=key,
                at_s=time.time(),
                files=tuple(files),
                rows=rows,
                watermark_ms=watermark,
            )
            self._log.append(entry)
        return rows

    def read(self, spark: SparkSession, options: ReaderOptions, *, with_watermark: bool = True) -> DataFrame:
        with_watermark = with_watermark and self.has_event_time
        df = open_stream(spark, channel_source(self.folder, self._fields, self._store, with_watermark), options)
        if not with_watermark:
            return df
        # The watermark is on a column of its own, because the rows of a join may be far ahead of its watermark. The
        # observation keeps Spark from pushing filters below it, which would hide the watermark rows from it.
        df = (
            df.withWatermark(WATERMARK, "0 seconds")
            .observe(event_observation(options.name), F.max(WATERMARK).alias("latest"))
            .where(F.col(WATERMARK).isNull())
            .drop(WATERMARK)
        )
        return with_metadata(df, {field.name: field.metadata for field in self._fields})

    def first(self) -> Offset:
        return {"entry": 0}

    def end(self) -> Offset:
        last = self._log.last()
        return {"entry": last.number + 1 if last else 0}

    def rows_between(self, start: Offset, end: Offset) -> int:
        return sum(entry.rows for entry in self._log.entries(start["entry"], end["entry"]))

    def appends_between(self, start: Offset, end: Offset) -> list[Append]:
        return [
            Append(
                number=entry.number,
                key=entry.key,
                rows=entry.rows,
                bytes=sum(file.bytes for file in entry.files),
                at_s=entry.at_s,
            )
            for entry in self._log.entries(start["entry"], end["entry"])
        ]

    def delete_before(self, offset: Offset) -> None:
        deleted = self._log.delete_before(offset["entry"])
        self._store.delete([file for entry in deleted for file in entry.files])

    def check_available(self) -> None:
        self._store.check_available()

    def delete_rows(self) -> None:
        self._store.delete_all()


def event_observation(name: str) -> str:
    """Return the name of the observation that holds the latest event time of a source, channel or operator."""
    return f"event_{name}"


def read_description(folder: Path) -> ChannelDescription:
    return msgspec.json.decode((folder / DESCRIPTION_FILE).read_bytes(), type=ChannelDescription)


def write_description(folder: Path, schema: str, kafka: TopicDescription | None = None) -> None:
    """Make the folder a channel."""
    (folder / "log").mkdir(parents=True, exist_ok=True)
    description = ChannelDescription(schema=schema, kafka=kafka)
    write_atomically(folder / DESCRIPTION_FILE, msgspec.json.encode(description))
