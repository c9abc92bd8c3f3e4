"""Starts Python on new executors before they count as available, and checks their access to the folders of the run."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfile
from pyspark.sql import Row, SparkSession

from penstock.engines.spark.executors.directory_access import DirectoryProbe
from penstock.engines.spark.jvm import JvmError, executors_of_tasks, list_executors

if TYPE_CHECKING:
    import pandas as pd

_TAG = "penstock.warm-up"
_MAX_ROUNDS = 5
_TASK_S = 0.2  # long enough that the following tasks go to other slots
_REPORT = "stage int, task bigint, failure string"


def warm_up(
    spark: SparkSession,
    ids: Sequence[str],
    slots_per_executor: int,
    *,
    max_s: float,
    directory: Path | None = None,
    outputs: Sequence[Path] = (),
    profile: ResourceProfile | None = None,
) -> dict[str, str | None]:
    """Run Python tasks until each of these executors has completed some, or for `max_s`.

    All of them must belong to one resource profile; None is the default one.

    Return each executor that completed a task, with the place that it cannot access and why, or None if it can access
    `directory` and the folders `outputs`.

    Spark assigns tasks without a preferred location to free slots, and new executors have the most of them. The time
    limit is necessary: if all executors are lost meanwhile, the job would wait for new ones indefinitely.
    """
    warm: dict[str, str | None] = {}
    if not ids:
        return warm
    probe = None if directory is None else DirectoryProbe(directory, outputs)
    deadline = time.monotonic() + max_s
    try:
        for attempt in itertools.count(1):
            reports = _run_tasks(spark, len(ids) * slots_per_executor * 2, probe, deadline, profile)
            executors = executors_of_tasks(spark, {row.stage for row in reports})
            for row in reports:
                executor = executors.get(row.task, "")
                if executor in ids:
                    failure = row.failure
                    if probe is not None and failure is None:
                        failure = probe.confirm_in_driver(str(row.task))
                    warm[executor] = warm.get(executor) or failure
            alive = {executor.id for executor in list_executors(spark)}  # some may be lost again by now
            is_complete = set(warm) >= alive.intersection(ids) or (probe is None and attempt == _MAX_ROUNDS)
            if is_complete or time.monotonic() >= deadline:
                break
    finally:
        if probe is not None:
            probe.close()
    return warm


def _run_tasks(
    spark: SparkSession, tasks: int, probe: DirectoryProbe | None, deadline: float, profile: ResourceProfile | None
) -> list[Row]:
    """Run short Python tasks and return their reports; cancel them at the deadline."""
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", _TAG)
    context.setJobDescription("Penstock warms up new executors")
    context.addJobTag(_TAG)
    cancellation = threading.Timer(max(0.0, deadline - time.monotonic()), context.cancelJobsWithTag, [_TAG])
    cancellation.start()
    try:
        return spark.range(0, tasks, 1, tasks).mapInPandas(_task(probe), _REPORT, profile=profile).collect()
    except (JvmError, PySparkException):
        if time.monotonic() < deadline:  # after the deadline it is the cancellation
            raise
        return []
    finally:
        cancellation.cancel()
        context.removeJobTag(_TAG)
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # None removes it
        context.setJobDescription(None)  # type: ignore[arg-type]


def _task(probe: DirectoryProbe | None) -> Callable[[Iterator[Any]], Iterator[pd.DataFrame]]:
    def run(frames: Iterator[Any]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # here, because the import would delay the start of every run

        time.sleep(_TASK_S)
        for _ in frames:
            pass
        task = TaskContext.get()
        assert task is not None
        failure = None if probe is None else probe.try_from_task(str(task.taskAttemptId()))
        yield pd.DataFrame({"stage": [task.stageId()], "task": [task.taskAttemptId()], "failure": [failure]})

    return run
