"""Where a query's batches go: a channel or a sink, each batch once under its key, whatever was tried before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.topics import Topic
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.sinks import ForeachBatch, Memory, Noop, Parquet, Sink
from penstock.engines.spark.channels.files import write_rows
from penstock.engines.spark.sinks.kafka import KafkaSink, record
from penstock.engines.spark.storage.files import create_once, write_whole

Write = Callable[[DataFrame, str], int | None]  # of a batch and its key -> its rows, if the writer has counted them


def counts(sink: Sink) -> bool:
    """Whether its writer knows how many rows it has written."""
    return not isinstance(sink, ForeachBatch)


def writer(name: str, sink: Sink, run: Path, stopping: Callable[[], bool]) -> Write | None:
    """None leaves it to Spark's own noop sink. Keys of batches are made unique to the run, which may share a place."""
    if isinstance(sink, Noop):
        return None
    if isinstance(sink, Memory):
        return FolderSink(run / "memory" / name, "arrow")
    if isinstance(sink, ForeachBatch):
        write: Write = sink.fn
    elif isinstance(sink, Parquet):
        write = FolderSink(Path(sink.path), "parquet")
    elif isinstance(sink, Kafka):
        write = KafkaSink(sink, f"penstock-{mark_of(run)}-{name}", run / "aside" / name, stopping)
    else:
        raise TypeError(f"sink '{name}' is not one that this engine knows: {sink!r}")
    mark = mark_of(run)
    return lambda df, key: write(df, f"{mark}-{key}")


def check_reachable(name: str, sink: Sink) -> None:
    """One clear error before anything runs, where it is known that no batch could be written."""
    if isinstance(sink, Kafka):
        Topic(KafkaCluster(bootstrap_servers=sink.bootstrap_servers, options=sink.options), sink.topic).required(
            f"sink '{name}'"
        )


def check_rows(sink: Sink, df: DataFrame) -> None:
    """One clear error before anything runs, where rows of this schema are not what the sink can write."""
    if isinstance(sink, Kafka):
        df.select(*record(df, sink))


def mark_of(run: Path) -> str:
    """A few letters that are this run's own, for as long as it lives."""
    path = run / "mark"
    create_once(path, uuid4().hex[:8].encode())
    return path.read_text()


class FolderSink:
    """Files named by the batch's key. They are written aside and moved in; a batch that was moved in whole stays.

    `_batches/` remembers the last whole batch of each checkpoint: Spark never repeats an earlier one.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder = folder
        self._suffix = suffix
        self._aside = folder / "_writing"
        (folder / "_batches").mkdir(parents=True, exist_ok=True)
        self._aside.mkdir(exist_ok=True)

    def __call__(self, df: DataFrame, key: str) -> int:
        files = write_rows(df, self._aside, self._suffix)  # always: the batch's state is made by running it
        if not _whole(self.folder, key):
            for stray in self.folder.glob(f"{key}-*.{self._suffix}"):  # of a try that a crash cut short
                stray.unlink()
            for part, file in enumerate(files):
                Path(file.path).rename(self.folder / f"{key}-{part:05d}.{self._suffix}")
            checkpoint, batch = key.rsplit(".", 1)
            write_whole(self.folder / "_batches" / checkpoint, batch.encode())
        else:
            for file in files:
                Path(file.path).unlink(missing_ok=True)
        return sum(file.rows for file in files)


def _whole(folder: Path, key: str) -> bool:
    checkpoint, batch = key.rsplit(".", 1)
    try:
        return int(batch) <= int((folder / "_batches" / checkpoint).read_text())
    except FileNotFoundError:
        return False


def memory_rows(run: Path, name: str) -> list[dict[str, Any]]:
    """All rows of a memory sink, in the order of their batches' arrival."""
    folder = run / "memory" / name
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.arrow"), key=lambda one: (one.stat().st_mtime_ns, one.name)):
        if _whole(folder, path.name.rsplit("-", 1)[0]):
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
                rows.extend(file.read_all().to_pylist())
    return rows
