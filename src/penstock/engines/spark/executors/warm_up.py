"""Starts Python on new executors before they count as available, because that takes seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import JvmError, list_executors

_TAG = "penstock.warm-up"
_MAX_ROUNDS = 5
_TASK_S = 0.2  # long enough that the following tasks go to other slots


def warm_up(spark: SparkSession, ids: Sequence[str], slots_per_executor: int, *, max_s: float) -> set[str]:
    """Run Python tasks until each of these executors has completed some, or for `max_s`; return those that did.

    Spark assigns tasks without a preferred location to free slots, and new executors have the most of them. The time
    limit is necessary: if all executors are lost meanwhile, the job would wait for new ones indefinitely.
    """
    warm: set[str] = set()
    if not ids:
        return warm
    before = _completed_tasks(spark)
    deadline = time.monotonic() + max_s
    for _ in range(_MAX_ROUNDS):
        _run_tasks(spark, len(ids) * slots_per_executor * 2, deadline)
        now = _completed_tasks(spark)
        warm = {executor for executor in ids if now.get(executor, 0) > before.get(executor, 0)}
        remaining = {executor for executor in ids if executor in now}  # some may be lost again by now
        if warm == remaining or time.monotonic() >= deadline:
            break
    return warm


def _run_tasks(spark: SparkSession, tasks: int, deadline: float) -> None:
    """Run short Python tasks; cancel them at the deadline."""
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", _TAG)
    context.setJobDescription("Penstock warms up new executors")
    context.addJobTag(_TAG)
    cancellation = threading.Timer(max(0.0, deadline - time.monotonic()), context.cancelJobsWithTag, [_TAG])
    cancellation.start()
    try:
        spark.range(0, tasks, 1, tasks).mapInPandas(_wait, "id bigint").write.format("noop").mode("append").save()
    except (JvmError, PySparkException):
        if time.monotonic() < deadline:  # after the deadline it is the cancellation
            raise
    finally:
        cancellation.cancel()
        context.removeJobTag(_TAG)
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # None removes it
        context.setJobDescription(None)  # type: ignore[arg-type]


def _wait(frames: Iterator[Any]) -> Iterator[Any]:
    time.sleep(_TASK_S)
    yield from frames


def _completed_tasks(spark: SparkSession) -> dict[str, int]:
    return {executor.id: executor.completed_tasks for executor in list_executors(spark)}
