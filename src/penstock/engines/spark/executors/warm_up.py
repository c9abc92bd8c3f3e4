"""Python on a new executor takes seconds to start: that is done before the executor counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import JvmError, list_executors

_TAG = "penstock.warm-up"
_MOST_ROUNDS = 5
_STAY_S = 0.2  # of a task, so that those behind it go to other slots


def warm_up(spark: SparkSession, ids: Sequence[str], slots_each: int, *, most_s: float) -> set[str]:
    """Runs Python tasks until each of these executors has done some, or for so long; returns those that did.

    Spark offers tasks without a preference to whoever has free slots, which is what new executors have most of. Where
    all executors are lost meanwhile a job would wait for others for ever.
    """
    done: set[str] = set()
    if not ids:
        return done
    before = _tasks_done(spark)
    context = spark.sparkContext
    ends_s = time.monotonic() + most_s
    for _ in range(_MOST_ROUNDS):
        tasks = len(ids) * slots_each * 2
        context.setLocalProperty("spark.scheduler.pool", _TAG)
        context.setJobDescription("Penstock warms up new executors")
        context.addJobTag(_TAG)
        given_up = threading.Timer(max(0.0, ends_s - time.monotonic()), context.cancelJobsWithTag, [_TAG])
        given_up.start()
        try:
            spark.range(0, tasks, 1, tasks).mapInPandas(_touch, "id bigint").write.format("noop").mode("append").save()
        except (JvmError, PySparkException):
            if time.monotonic() < ends_s:  # otherwise it is what giving up looks like
                raise
        finally:
            given_up.cancel()
            context.removeJobTag(_TAG)
            context.setLocalProperty("spark.scheduler.pool", None)
            context.setJobDescription(None)
        now = _tasks_done(spark)
        done = {one for one in ids if now.get(one, 0) > before.get(one, 0)}
        if done == {one for one in ids if one in now} or time.monotonic() >= ends_s:  # one may be lost again by now
            break
    return done


def _touch(frames: Iterator[Any]) -> Iterator[Any]:
    time.sleep(_STAY_S)
    yield from frames


def _tasks_done(spark: SparkSession) -> dict[str, int]:
    return {executor.id: executor.completed_tasks for executor in list_executors(spark)}
