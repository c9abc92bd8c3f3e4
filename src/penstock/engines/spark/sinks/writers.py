"""Sinks: each stores a batch once under its key, even if the batch runs several times."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.existing import Existing
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.sinks import ForeachBatch, Memory, Noop, Parquet, Sink
from penstock.engines.spark.sinks.batch_numbers import BatchNumbers
from penstock.engines.spark.sinks.folder_output import BATCHES, WRITING, FolderOutput
from penstock.engines.spark.sinks.kafka import KafkaSink, record_columns
from penstock.engines.spark.sinks.latest_result import FILE_STEM, LatestResultSink
from penstock.engines.spark.sinks.ownership import Claim, OutputOwner, run_token
from penstock.engines.spark.sinks.topic_output import TopicOutput
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.engines.spark.storage.column_names import repeated_name
from penstock.engines.spark.storage.row_files import RowFile, write_dataframe
from penstock.engines.spark.storage.schemas import refuse_intervals_of_months

Write = Callable[[DataFrame, str], int | None]  # (batch, key) -> rows written, or None if the writer does not count
Output = FolderOutput | TopicOutput


def counts_rows(sink: Sink) -> bool:
    """Return whether the writer of this sink counts the rows that it writes."""
    return not isinstance(sink, ForeachBatch)


def output_of(name: str, sink: Sink, run: Path, *, is_resumed: bool) -> Output | None:
    """Return the place outside the run directory to which a sink writes; None if Penstock does not know it."""
    if isinstance(sink, Parquet):
        return FolderOutput(Path(sink.path), _claim(name, f"folder '{sink.path}'", sink.existing, run, is_resumed))
    if isinstance(sink, Kafka):
        topic = Topic(KafkaCluster(bootstrap_servers=sink.bootstrap_servers, options=sink.options), sink.topic)
        return TopicOutput(topic, _claim(name, f"topic '{sink.topic}'", sink.existing, run, is_resumed))
    return None


def _claim(sink: str, output: str, existing: Existing, run: Path, is_resumed: bool) -> Claim:
    owner = OutputOwner(run=run_token(run), sink=sink, directory=str(run))
    return Claim(owner=owner, existing=existing, is_resumed=is_resumed, output=output)


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
    if isinstance(sink, Memory):
        folder = run / "memory" / name
        return LatestResultSink(folder, FILE_STEM, "arrow") if replaces else FolderSink(folder, "arrow")
    token, output = run_token(run), output_of(name, sink, run, is_resumed=True)
    if isinstance(output, FolderOutput):
        if replaces:
            return LatestResultSink(output.folder, f"{token}-{FILE_STEM}", "parquet", output)
        write: Write = FolderSink(output.folder, "parquet", output)
    elif isinstance(sink, Kafka) and isinstance(output, TopicOutput):
        write = KafkaSink(sink, f"penstock-{token}-{name}", run / "aside" / name, is_stopping, output)
    else:
        raise TypeError(f"sink '{name}' is declared as {sink!r}, which the Spark engine does not support")
    return lambda df, key: write(df, f"{token}-{key}")


def _function_writer(sink: ForeachBatch, numbers: BatchNumbers) -> Write:
    def write(df: DataFrame, key: str) -> None:
        sink.fn(df, numbers.number(key))

    return write


def check_columns(name: str, sink: Sink, df: DataFrame) -> None:
    """Raise DataflowError before anything runs if the sink cannot write rows with these columns."""
    if isinstance(sink, Memory | Parquet | Kafka):
        repeated = repeated_name(df.columns, ignores_case=isinstance(sink, Parquet))
        if repeated is not None:
            raise DataflowError(
                f"sink '{name}' receives two columns named '{repeated}', of which a reader would find only one; rename "
                "one of them before the sink"
            )
    if isinstance(sink, Memory | Parquet):
        refuse_intervals_of_months(f"sink '{name}'", df.schema)
    if isinstance(sink, Kafka):
        df.select(*record_columns(df, sink))


class FolderSink:
    """Writes files named by the key of their batch. They are written to another folder first and then moved.

    The folder `_batches` holds the last complete batch of each checkpoint. Spark never repeats an earlier one.
    """

    def __init__(self, folder: Path, suffix: str, output: FolderOutput | None = None) -> None:
        """`output` refuses to publish a batch in a folder that another run has taken over."""
        self.folder = folder
        self._suffix = suffix
        self._output = output
        self._temporary = folder / WRITING
        (folder / BATCHES).mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir(exist_ok=True)

    def __call__(self, df: DataFrame, key: str) -> int:
        files = write_dataframe(df, self._temporary, self._suffix)  # always: running the batch updates its state
        with self._output.owned() if self._output is not None else contextlib.nullcontext():
            self._publish(files, key)
        return sum(file.rows for file in files)

    def _publish(self, files: list[RowFile], key: str) -> None:
        if not _is_complete(self.folder, key):
            for stray in self.folder.glob(f"{key}-*.{self._suffix}"):  # left by an attempt that a crash interrupted
                stray.unlink()
            for part, file in enumerate(files):
                Path(file.path).rename(self.folder / f"{key}-{part:05d}.{self._suffix}")
            checkpoint, batch = key.rsplit(".", 1)
            write_atomically(self.folder / BATCHES / checkpoint, batch.encode())
        else:
            for file in files:
                Path(file.path).unlink(missing_ok=True)


def _is_complete(folder: Path, key: str) -> bool:
    checkpoint, batch = key.rsplit(".", 1)
    try:
        return int(batch) <= int((folder / BATCHES / checkpoint).read_text())
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
