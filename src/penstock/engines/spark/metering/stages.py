"""The stages of each batch with their task times, from Spark's record of jobs and stages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import Job, Stage, StatusStore
from penstock.measure.stage_run import StageRun

_BATCH = re.compile(r"batch = (\d+)")

_KEEP, _KEEP_LAST = 3, 1_000  # refreshes for which a batch is kept; the last batch of a query may still run
BatchKey = tuple[str, int]  # run id of the query, batch id


@dataclass(slots=True)
class _BatchStages:
    stages: dict[int, Stage] = field(default_factory=dict)
    is_running: bool = False  # a job has not ended
    refresh: int = 0  # number of the refresh that read the last job


class StageTimes:
    """The stages of recent batches; refreshed once per window. All jobs of a batch count.

    The values of earlier refreshes are kept, because a batch may last for many windows, and because its progress report
    may arrive one window later. If `from_now` is set, earlier jobs of the session are not read: a session that has
    been used for a long time has thousands of them.
    """

    def __init__(self, spark: SparkSession, *, from_now: bool) -> None:
        self._store = StatusStore(spark)
        self._next_job = self._store.next_job() if from_now else 0
        self._refreshes = 0
        self._batches: dict[BatchKey, _BatchStages] = {}

    def refresh(self) -> None:
        """Read the jobs that Spark has recorded since the last refresh."""
        self._refreshes += 1
        jobs = self._store.jobs_since(self._next_job)
        for batch in self._batches.values():
            batch.is_running = False
        unread = jobs[-1].job_id + 1 if jobs else self._next_job
        for job in jobs:
            match = _BATCH.search(job.description or "")
            if match is None or not job.job_group:
                continue
            batch = self._batches.setdefault((job.job_group, int(match[1])), _BatchStages())
            batch.refresh = self._refreshes
            if job.status == "RUNNING":
                batch.is_running, unread = True, min(unread, job.job_id)
            else:
                self._read_stages(job, batch)
        self._next_job = unread
        self._drop_old_batches()

    def busy_s(self, run_id: str, batch_id: int) -> float | None:
        """Return the task time of a batch in seconds, summed over all slots; None if not all of its jobs have ended."""
        batch = self._ended(run_id, batch_id)
        return None if batch is None else sum(stage.executor_run_time for stage in batch.stages.values()) / 1000

    def stages(self, run_id: str, batch_id: int) -> tuple[StageRun, ...] | None:
        """Return the stages of a batch in the order of their ids; None if not all of its jobs have ended."""
        batch = self._ended(run_id, batch_id)
        if batch is None:
            return None
        return tuple(
            StageRun(
                tasks=stage.num_tasks,
                task_s=stage.executor_run_time / 1000,
                wall_s=wall_s,
                longest_s=self._store.longest_task_s(stage) if stage.num_tasks > 1 else stage.executor_run_time / 1000,
            )
            for _, stage in sorted(batch.stages.items())
            if (wall_s := stage.wall_s) is not None
        )

    def _ended(self, run_id: str, batch_id: int) -> _BatchStages | None:
        batch = self._batches.get((run_id, batch_id))
        return None if batch is None or batch.is_running else batch

    def _read_stages(self, job: Job, batch: _BatchStages) -> None:
        """Add the stages that ran. Two jobs may list the same stage, which the second one skips."""
        for stage_id in job.stage_ids:
            if stage_id not in batch.stages:
                stage = self._store.stage(stage_id)
                if stage is not None and stage.status == "COMPLETE":
                    batch.stages[stage_id] = stage

    def _drop_old_batches(self) -> None:
        last_batch: dict[str, int] = {}
        for run_id, batch_id in self._batches:
            last_batch[run_id] = max(batch_id, last_batch.get(run_id, -1))
        for key, batch in list(self._batches.items()):
            keep = _KEEP_LAST if key[1] == last_batch[key[0]] else _KEEP
            if self._refreshes - batch.refresh >= keep:
                del self._batches[key]
