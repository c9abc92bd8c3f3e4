"""Task time of each batch, from Spark's record of jobs and stages."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import StatusStore

_BATCH = re.compile(r"batch = (\d+)")
_MAX_JOBS = 60  # per refresh; a sample of the batches suffices and keeps the refresh cheap

BatchKey = tuple[str, int]  # run id of the query, batch id


class StageTimes:
    """The task time of recent batches; refreshed once per window.

    The values of the previous refresh are kept, because the progress report of a batch may arrive one window later.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._store = StatusStore(spark)
        self._next_job = 0
        self._latest: dict[BatchKey, float] = {}
        self._busy_s: dict[BatchKey, float] = {}

    def refresh(self) -> None:
        """Read the jobs that Spark has recorded since the last refresh."""
        latest = self._read_new_jobs()
        self._busy_s, self._latest = self._latest | latest, latest

    def busy_s(self, run_id: str, batch_id: int) -> float | None:
        """Return the task time of a batch in seconds, summed over all slots; None if not all of its jobs have ended."""
        return self._busy_s.get((run_id, batch_id))

    def _read_new_jobs(self) -> dict[BatchKey, float]:
        last = self._store.last_job_id()
        if last is None:
            return {}
        busy_s: dict[BatchKey, float] = {}
        unfinished: set[BatchKey] = set()
        self._next_job = max(self._next_job, last - _MAX_JOBS)
        first_unfinished = last + 1
        for job_id in range(self._next_job, last + 1):
            job = self._store.job(job_id)
            batch = _BATCH.search(job.description or "") if job else None
            if job is None or batch is None or not job.job_group:
                continue
            key = (job.job_group, int(batch[1]))
            if job.status == "RUNNING":
                unfinished.add(key)
                first_unfinished = min(first_unfinished, job_id)
                continue
            for stage_id in job.stage_ids:
                stage = self._store.stage(stage_id)
                if stage is not None and stage.status == "COMPLETE":
                    busy_s[key] = busy_s.get(key, 0.0) + stage.executor_run_time / 1000
        self._next_job = first_unfinished
        return {key: seconds for key, seconds in busy_s.items() if key not in unfinished}
