"""Read a source or channel through a streaming query, for the contract suites of both families."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import Offset, save_start_offsets
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.storage.atomic_files import write_atomically

NAME = "c"  # the name of the source in the checkpoint of the query
Read = Callable[[SparkSession, ReaderOptions], DataFrame]


def reader_options(run: Path, query: str, replicas: int, opens_at: int = 1) -> ReaderOptions:
    return ReaderOptions(
        name=NAME, replicas=replicas, query=query, opens_at=opens_at, run=run, batch_s=2.0, max_rows=None
    )


def commit_generation(run: Path, generation: int) -> None:
    """Commit a plan of this generation, which opens the gates of its queries."""
    write_atomically(run / PLAN_FILE, b'{"generation": %d}' % generation)


class ReadingQuery:
    """Return a query that collects all rows from an offset on."""

    def __init__(self, spark: SparkSession, read: Read, options: ReaderOptions, start: Offset) -> None:
        save_start_offsets(options.run, options.query, {NAME: start})
        self.rows: list[Any] = []
        self.partitions: set[int] = set()
        stream = read(spark, options).writeStream.foreachBatch(self._collect)
        self.query = stream.option("checkpointLocation", str(options.run / options.query)).start()

    def _collect(self, df: DataFrame, number: int) -> None:
        self.partitions.add(df.rdd.getNumPartitions())
        self.rows.extend(df.collect())

    def await_rows(self, count: int, timeout_s: float = 500.0) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self.rows) < count and time.monotonic() < deadline:
            assert self.query.exception() is None
            time.sleep(0.05)

    def await_idle(self, timeout_s: float = 500.0) -> None:
        deadline = time.monotonic() + timeout_s
        while "Waiting" not in self.query.status["message"] and time.monotonic() < deadline:
            time.sleep(0.05)

    def __enter__(self) -> ReadingQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()
