"""The embedded channel: a log of Arrow files on a local or shared disk.

`log/` holds one small JSON file an append, numbered without gaps and created whole or not at all: that creation is the
commit. `rows/` holds the files that the entries name. Tasks write a file each under names of their own, so that a task
tried twice leaves a stray file and never a wrong row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from penstock.engines.spark.channels import embedded_source
from penstock.engines.spark.channels.contract import Appended, EventTime, Offset
from penstock.engines.spark.channels.log import Entry, Log
from penstock.engines.spark.files import write_whole
from penstock.engines.spark.rowfiles import RowFile

_WRITTEN = "file string, rows bigint, bytes bigint"


class EmbeddedChannel:
    def __init__(self, folder: Path, batch_s: float = 2.0, most_rows: int | None = None) -> None:
        self.folder = folder
        self._log = Log(folder)
        self._batch_s = batch_s
        self._most_rows = most_rows
        about = msgspec.json.decode((folder / "channel.json").read_bytes())
        self.schema: str = about["schema"]
        self.event_time = EventTime(**about["event_time"]) if about["event_time"] else None

    @staticmethod
    def create(folder: Path, schema: str, event_time: EventTime | None, **how: Any) -> EmbeddedChannel:
        """`schema` is Spark's JSON of the rows' schema."""
        (folder / "log").mkdir(parents=True, exist_ok=True)
        (folder / "rows").mkdir(exist_ok=True)
        about = {
            "schema": schema,
            "event_time": {"column": event_time.column, "delay": event_time.delay} if event_time else None,
        }
        write_whole(folder / "channel.json", msgspec.json.encode(about))
        return EmbeddedChannel(folder, **how)

    def append(self, df: DataFrame, key: str, latest_event_s: Callable[[], float | None] | None = None) -> int:
        files = write_rows(df, self.folder / "rows")
        rows = sum(file.rows for file in files)
        last = self._log.last()
        if last is not None and last.key == key:  # published before a crash that came before Spark's own commit
            for file in files:
                Path(file.path).unlink(missing_ok=True)
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
        source = embedded_source.source_class(self.folder.name, schema, event)
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
        column = self.event_time.column
        # The observation keeps Spark from pushing the filter below the watermark, which the marks must reach.
        return (
            df.withWatermark(column, self.event_time.delay)
            .observe(f"event_{name}", F.max(column).alias("latest"))
            .where(~F.col(embedded_source.MARK))
            .drop(embedded_source.MARK)
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
        self._log.forget(before["entry"])


def write_rows(df: DataFrame, folder: Path, suffix: str = "arrow") -> list[RowFile]:
    """Runs the batch: every task writes one file and reports it; only the reports of successful tasks count."""
    target = str(folder)

    def write(batches: Any) -> Any:
        path = Path(target) / f"{uuid4().hex}.{suffix}"
        rows, writer = 0, None
        for batch in batches:
            if writer is None:
                writer = _writer(path, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
            yield pa.RecordBatch.from_pydict({"file": [str(path)], "rows": [rows], "bytes": [path.stat().st_size]})

    return [RowFile(row.file, row.rows, row.bytes) for row in df.mapInArrow(write, _WRITTEN).collect()]


def _writer(path: Path, schema: pa.Schema) -> Any:
    if path.suffix == ".arrow":
        return pa.ipc.new_file(str(path), schema)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(str(path), schema)
