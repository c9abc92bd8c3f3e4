"""Sinks: each stores a batch once under its key, even if the batch runs several times."""

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
from penstock.engines.spark.sinks.batch_numbers import BatchNumbers
from penstock.engines.spark.sinks.kafka import KafkaSink, record_columns
from penstock.engines.spark.sinks.latest_result import FILE_STEM, LatestResultSink
from penstock.engines.spark.storage.atomic_files import create_exclusively, write_atomically
from penstock.engines.spark.storage.row_files import write_dataframe

Write = Callable[[DataFrame, str], int | None]  # (batch, key) -> rows written, or None if the writer does not count


def counts_rows(sink: Sink) -> bool:
    """Return whether the writer of this sink counts the rows that it writes."""
    return not isinstance(sink, ForeachBatch)


def create_writer(
    name: str, sink: Sink, run: Path, is_stopping: Callable[[], bool], *, replaces: bool = False
) -> Write | None:
    """Return the writer of a sink, or None if Spark's noop sink is used.

    Keys of batches become unique to the run, because several runs may write to one place. `replaces`: each batch holds
    the whole result (complete mode) and replaces the previous one.
    """
    if isinstance(sink, Noop):
        return None
    if isinstance(sink, ForeachBatch):
        return _function_writer(sink, BatchNumbers(run / "batch_numbers" / f"{name}.json"))
    folder_sink = LatestResultSink if replaces else FolderSink
    if isinstance(sink, Memory):
        return folder_sink(run / "memory" / name, "arrow")
    if isinstance(sink, Parquet):
        write: Write = folder_sink(Path(sink.path), "parquet")
    elif isinstance(sink, Kafka):
        write = KafkaSink(sink, f"penstock-{run_token(run)}-{name}", run / "aside" / name, is_stopping)
    else:
        raise TypeError(f"sink '{name}' is declared as {sink!r}, which the Spark engine does not support")
    token = run_token(run)
    return lambda df, key: write(df, f"{token}-{key}")


def _function_writer(sink: ForeachBatch, numbers: BatchNumbers) -> Write:
    def write(df: DataFrame, key: str) -> None:
        sink.fn(df, numbers.number(key))

    return write


def check_reachable(name: str, sink: Sink) -> None:
    """Raise PenstockError before anything runs if the sink cannot be reached."""
    if isinstance(sink, Kafka):
        Topic(KafkaCluster(bootstrap_servers=sink.bootstrap_servers, options=sink.options), sink.topic).required(
            f"sink '{name}'"
        )


def check_columns(sink: Sink, df: DataFrame) -> None:
    """Raise DataflowError before anything runs if the sink cannot write rows with these columns."""
    if isinstance(sink, Kafka):
        df.select(*record_columns(df, sink))


def run_token(run: Path) -> str:
    """Return a short random text that identifies the run; it is created once and kept in the run directory."""
    path = run / "token"
    create_exclusively(path, uuid4().hex[:8].encode())
    return path.read_text()


class FolderSink:
    """Writes files named by the key of their batch. They are written to another folder first and then moved.

    The folder `_batches` holds the last complete batch of each checkpoint. Spark never repeats an earlier one.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder = folder
        self._suffix = suffix
        self._temporary = folder / "_writing"
        (folder / "_batches").mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir(exist_ok=True)

    def __call__(self, df: DataFrame, key: str) -> int:
        files = write_dataframe(df, self._temporary, self._suffix)  # always: running the batch updates its state
        if not _is_complete(self.folder, key):
            for stray in self.folder.glob(f"{key}-*.{self._suffix}"):  # left by an attempt that a crash interrupted
                stray.unlink()
            for part, file in enumerate(files):
                Path(file.path).rename(self.folder / f"{key}-{part:05d}.{self._suffix}")
            checkpoint, batch = key.rsplit(".", 1)
            write_atomically(self.folder / "_batches" / checkpoint, batch.encode())
        else:
            for file in files:
                Path(file.path).unlink(missing_ok=True)
        return sum(file.rows for file in files)


def _is_complete(folder: Path, key: str) -> bool:
    checkpoint, batch = key.rsplit(".", 1)
    try:
        return int(batch) <= int((folder / "_batches" / checkpoint).read_text())
    except FileNotFoundError:
        return False


def memory_rows(run: Path, name: str) -> list[dict[str, Any]]:
    """Return all rows of a memory sink in the order in which their batches were written."""
    folder = run / "memory" / name
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.arrow"), key=lambda path: (path.stat().st_mtime_ns, path.name)):
        if path.stem == FILE_STEM or _is_complete(folder, path.name.rsplit("-", 1)[0]):
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
                rows.extend(file.read_all().to_pylist())
    return rows
