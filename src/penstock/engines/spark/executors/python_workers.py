"""Starts the Python workers of a new local session while its queries are compiled."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import JvmError


def start_python_workers(spark: SparkSession) -> threading.Thread:
    """Run one small Python task per slot in the background, and return the thread.

    The analysis of Python data sources starts other Python processes one after another, and each of them keeps one core
    busy. The workers of the first batch start meanwhile on another core.
    """

    def run() -> None:
        # The first batch starts the workers if this fails, for example because the session was stopped.
        with contextlib.suppress(JvmError, PySparkException, OSError):
            slots = spark.sparkContext.defaultParallelism
            spark.sparkContext.setJobDescription("Penstock starts Python workers")
            tasks = spark.range(0, slots, 1, slots).mapInArrow(_unchanged, "id bigint")
            tasks.write.format("noop").mode("append").save()

    thread = threading.Thread(target=run, name="penstock-python-workers", daemon=True)
    thread.start()
    return thread


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    return batches
