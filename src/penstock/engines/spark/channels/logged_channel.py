"""A channel as a log of appends: the folder `log` holds one small JSON file per append, numbered without gaps.

The creation of a log file is atomic and is the commit of its append. The file lists where the rows are stored. Rows
that are not listed, from a task that ran twice or a batch that a crash interrupted, are never read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from penstock.engines.spark.channels.contract import Append, EventTime, RowStore
from penstock.engines.spark.channels.log import Entry, Log
from penstock.engines.spark.channels.reader import IS_WATERMARK_ROW, channel_source
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions, open_stream
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.engines.spark.storage.column_names import quoted

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
    event_time: EventTime | None = None
    kafka: TopicDescription | None = None  # None: the rows are in the channel's folder


class LoggedChannel:
    def __init__(self, folder: Path, store: RowStore) -> None:
        self.folder = folder
        self._store = store
        self._log = Log(folder)
        description = read_description(folder)
        self.schema = description.schema
        self.event_time = description.event_time

    def append(self, df: DataFrame, key: str, latest_event_s: Callable[[], float | None] | None = None) -> int:
        files = self._store.write(df, key)
        rows = sum(file.rows for file in files)
        last = self._log.last()
        if last is not None and last.key == key:  # appended before a crash that preceded Spark's own commit
            self._store.discard(files)
            return last.rows
        event_s = latest_event_s() if latest_event_s and self.event_time else None
        last_event_s = last.latest_event_s if last else None
        if rows or (event_s is not None and (last_event_s is None or event_s > last_event_s)):
            entry = Entry(
                number=last.number + 1 if last else 0,
                key=key,
                at_s=time.time(),
                files=tuple(files),
                rows=rows,
                latest_event_s=event_s,
            )
            self._log.append(entry)
        return rows

    def read(self, spark: SparkSession, options: ReaderOptions) -> DataFrame:
        schema = StructType.fromJson(msgspec.json.decode(self.schema))
        event_column = self.event_time.column if self.event_time else None
        df = open_stream(spark, channel_source(self.folder, schema, event_column, self._store), options)
        if self.event_time is None:
            return df
        column = quoted(self.event_time.column)
        # The observation keeps Spark from pushing the filter below the watermark, which the watermark rows must reach.
        return (
            df.withWatermark(column, self.event_time.delay)
            .observe(event_observation(options.name), F.max(column).alias("latest"))
            .where(~F.col(IS_WATERMARK_ROW))
            .drop(IS_WATERMARK_ROW)
        )

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


def write_description(
    folder: Path, schema: str, event_time: EventTime | None, kafka: TopicDescription | None = None
) -> None:
    """Make the folder a channel."""
    (folder / "log").mkdir(parents=True, exist_ok=True)
    description = ChannelDescription(schema=schema, event_time=event_time, kafka=kafka)
    write_atomically(folder / DESCRIPTION_FILE, msgspec.json.encode(description))
