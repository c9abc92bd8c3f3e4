"""A channel as a log of appends: `log/` holds one small JSON file each, numbered without gaps.

A file of the log is created whole or not at all: that creation is the commit. It names where the rows of its append
lie, so that what tasks wrote and nobody committed, a task tried twice or a batch cut short by a crash, is never read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from penstock.engines.spark.channels import reader
from penstock.engines.spark.channels.contract import Appended, EventTime, Offset, Place
from penstock.engines.spark.channels.log import Entry, Log
from penstock.engines.spark.storage.column_names import quoted
from penstock.engines.spark.storage.files import write_whole

FILE = "channel.json"


class LoggedChannel:
    def __init__(self, folder: Path, place: Place, batch_s: float = 2.0, most_rows: int | None = None) -> None:
        self.folder = folder
        self._place = place
        self._log = Log(folder)
        self._batch_s = batch_s
        self._most_rows = most_rows
        about = read_about(folder)
        self.schema: str = about["schema"]
        self.event_time = EventTime(**about["event_time"]) if about["event_time"] else None

    def append(self, df: DataFrame, key: str, latest_event_s: Callable[[], float | None] | None = None) -> int:
        files = self._place.write(df, key)
        rows = sum(file.rows for file in files)
        last = self._log.last()
        if last is not None and last.key == key:  # published before a crash that came before Spark's own commit
            self._place.discard(files)
            return last.rows
        mark = latest_event_s() if latest_event_s and self.event_time else None
        seen = last.latest_event_s if last else None
        if rows or (mark is not None and (seen is None or mark > seen)):
            number = last.number + 1 if last else 0
            entry = Entry(number=number, key=key, at_s=time.time(), files=tuple(files), rows=rows, latest_event_s=mark)
            self._log.append(entry)
        return rows

    def read(self, spark: SparkSession, *, name: str, replicas: int, query: str, opens_at: int) -> DataFrame:
        schema = StructType.fromJson(msgspec.json.decode(self.schema))
        event = self.event_time.column if self.event_time else None
        source = reader.source_class(self.folder.name, schema, event, self._place)
        spark.dataSource.register(source)
        options = {
            "folder": str(self.folder),
            "run": str(self.folder.parent.parent),
            "name": name,
            "tick": str(time.time_ns() // 1_000_000),
            "timings": str(self.folder.parent.parent / "timings" / name),
            "replicas": str(replicas),
            "query": query,
            "opens_at": str(opens_at),
            "batch_s": str(self._batch_s),
            "most_rows": str(self._most_rows or ""),
        }
        df = spark.readStream.format(source.name()).name(name).options(**options).load()
        if self.event_time is None:
            return df
        column = quoted(self.event_time.column)
        # The observation keeps Spark from pushing the filter below the watermark, which the marks must reach.
        return (
            df.withWatermark(column, self.event_time.delay)
            .observe(f"event_{name}", F.max(column).alias("latest"))
            .where(~F.col(reader.MARK))
            .drop(reader.MARK)
        )

    def first(self) -> Offset:
        return {"entry": 0}

    def end(self) -> Offset:
        last = self._log.last()
        return {"entry": last.number + 1 if last else 0}

    def rows_between(self, start: Offset, end: Offset) -> int:
        return sum(entry.rows for entry in self._log.entries(start["entry"], end["entry"]))

    def appends_between(self, start: Offset, end: Offset) -> list[Appended]:
        return [
            Appended(
                number=entry.number,
                key=entry.key,
                rows=entry.rows,
                bytes=sum(file.bytes for file in entry.files),
                at_s=entry.at_s,
            )
            for entry in self._log.entries(start["entry"], end["entry"])
        ]

    def forget(self, before: Offset) -> None:
        forgotten = self._log.forget(before["entry"])
        self._place.delete([file for entry in forgotten for file in entry.files])

    def check(self) -> None:
        self._place.check()

    def drop(self) -> None:
        self._place.drop()


def read_about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = msgspec.json.decode((folder / FILE).read_bytes())
    return about


def write_about(folder: Path, schema: str, event_time: EventTime | None, **more: Any) -> None:
    """Makes the folder a channel. `schema` is Spark's JSON of the rows' schema."""
    (folder / "log").mkdir(parents=True, exist_ok=True)
    event = {"column": event_time.column, "delay": event_time.delay} if event_time else None
    write_whole(folder / FILE, msgspec.json.encode({"schema": schema, "event_time": event, **more}))
