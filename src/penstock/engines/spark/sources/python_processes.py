"""Starts the Python processes of a new local session while its queries are compiled."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


def start_python_processes(spark: SparkSession) -> threading.Thread:
    """Read a small Python data source with one task per slot in the background, and return the thread.

    A query needs several Python processes one after another: to create its data source, to plan its batches, and to
    run its tasks. Spark keeps them for the next use. They start here on another core while queries are compiled. Each
    task has a row, because Arrow imports pandas when it converts the first one.
    """

    def run() -> None:
        # The first batch starts the processes if this fails. A start that is given up ends the JVM at any point.
        with contextlib.suppress(Exception):
            spark.sparkContext.setJobDescription("Penstock starts Python workers")
            small_query(spark).write.format("noop").mode("append").save()

    thread = threading.Thread(target=run, name="penstock-python-workers", daemon=True)
    thread.start()
    return thread


def small_query(spark: SparkSession) -> DataFrame:
    """Return one row per slot, from a Python data source and through a Python function."""
    spark.dataSource.register(WarmUp)
    rows = spark.read.format(WarmUp.name()).option("slots", spark.sparkContext.defaultParallelism).load()
    return rows.mapInArrow(_unchanged, "id bigint")


class WarmUp(DataSource):
    """A source with one partition per slot, and one row in each."""

    @classmethod
    def name(cls) -> str:
        return "penstock_warm_up"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return _WarmUpReader(int(self.options["slots"]))


class _WarmUpReader(DataSourceReader):
    def __init__(self, slots: int) -> None:
        self._slots = slots

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._slots)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _import_modules()
        yield pa.RecordBatch.from_pydict({"id": [partition.value]})


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    _import_modules()
    for batch in batches:
        yield pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema)


def _import_modules() -> None:
    """Import what sources and row functions need."""
    for module in ("penstock.engines.spark.sources.paced", "penstock.engines.spark.compile.row_functions"):
        importlib.import_module(module)  # imported by name: one of them is in a higher layer
