"""Task time by batch, from Spark's own record of jobs and stages."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import StatusStore

_BATCH = re.compile(r"batch = (\d+)")
_MOST = 60  # jobs looked at each time: a sample of the batches is enough, and the look stays cheap


class Stages:
    """Looked at once a window; a batch may be heard of a window after its stages."""

    def __init__(self, spark: SparkSession) -> None:
        self._store = StatusStore(spark)
        self._next_job = 0
        self._last: dict[tuple[str, int], float] = {}
        self._busy: dict[tuple[str, int], float] = {}  # (run id, batch) -> seconds of tasks

    def look(self) -> None:
        now = self._lately()
        self._busy, self._last = self._last | now, now

    def busy_s(self, run_id: str, batch: int) -> float | None:
        """Seconds of tasks, all slots added up; None of batches whose jobs have not all been seen to end."""
        return self._busy.get((run_id, batch))

    def _lately(self) -> dict[tuple[str, int], float]:
        """Of the jobs that have come since the last time."""
        found: dict[tuple[str, int], float] = {}
        unfinished: set[tuple[str, int]] = set()
        last = self._store.last_job_id()
        if last is None:
            return {}
        self._next_job = max(self._next_job, last - _MOST)
        first_open = last + 1
        for number in range(self._next_job, last + 1):
            job = self._store.job(number)
            batch = _BATCH.search(job.description or "") if job else None
            if job is None or batch is None or not job.job_group:
                continue
            key = (job.job_group, int(batch[1]))
            if job.status == "RUNNING":
                unfinished.add(key)
                first_open = min(first_open, number)
                continue
            for stage_id in job.stage_ids:
                stage = self._store.stage(stage_id)
                if stage is not None and stage.status == "COMPLETE":
                    found[key] = found.get(key, 0.0) + stage.executor_run_time / 1000
        self._next_job = first_open
        return {key: seconds for key, seconds in found.items() if key not in unfinished}
