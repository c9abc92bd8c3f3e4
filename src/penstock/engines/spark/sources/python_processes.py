"""Starts the Python processes of a new local session while its queries are compiled."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


def start_python_processes(spark: SparkSession) -> threading.Thread:
    """Read an empty Python data source with one task per slot in the background, and return the thread.

    A query needs several Python processes one after another: to create its data source, to plan its batches, and to
    run its tasks. Spark keeps them for the next use. They start here on another core while queries are compiled.
    """

    def run() -> None:
        # The first batch starts the processes if this fails. A start that is given up ends the JVM at any point.
        with contextlib.suppress(Exception):
            spark.sparkContext.setJobDescription("Penstock starts Python workers")
            spark.dataSource.register(WarmUp)
            slots = spark.sparkContext.defaultParallelism
            rows = spark.read.format(WarmUp.name()).option("slots", slots).load()
            rows.mapInArrow(_unchanged, "id bigint").write.format("noop").mode("append").save()

    thread = threading.Thread(target=run, name="penstock-python-workers", daemon=True)
    thread.start()
    return thread


class WarmUp(DataSource):
    """A source without rows that has one partition per slot."""

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

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        _import_modules()
        return iter(())


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    _import_modules()
    return batches


def _import_modules() -> None:
    """Import what sources and row functions need."""
    for module in ("penstock.engines.spark.sources.paced", "penstock.engines.spark.compile.row_functions"):
        importlib.import_module(module)  # by name, because the second one is in a layer above this one
