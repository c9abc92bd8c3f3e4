"""Task time by batch, from Spark's own record of jobs and stages."""

from __future__ import annotations

import json
import re
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

_BATCH = re.compile(r"batch = (\d+)")
_MOST = 60  # jobs looked at each time: a sample of the batches is enough, and the look stays cheap


class Stages:
    """Looked at once a window; a batch may be heard of a window after its stages."""

    def __init__(self, spark: Any) -> None:
        context = spark.sparkContext._jsc.sc()
        self._store = context.statusStore()
        self._next_job = 0
        self._last: dict[tuple[str, int], float] = {}
        self._busy: dict[tuple[str, int], float] = {}  # (run id, batch) -> seconds of tasks
        jvm = spark._jvm
        self._json = jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._json.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())

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
        last = self._last_job()
        if last is None:
            return {}
        self._next_job = max(self._next_job, last - _MOST)
        first_open = last + 1
        for number in range(self._next_job, last + 1):
            job = self._read("job", number)
            batch = _BATCH.search(job.get("description") or "") if job else None
            if job is None or batch is None or not job.get("jobGroup"):
                continue
            key = (job["jobGroup"], int(batch[1]))
            if job["status"] == "RUNNING":
                unfinished.add(key)
                first_open = min(first_open, number)
                continue
            for stage in job["stageIds"]:
                done = self._read("lastStageAttempt", stage)
                if done is not None and done["status"] == "COMPLETE":
                    found[key] = found.get(key, 0.0) + done["executorRunTime"] / 1000
        self._next_job = first_open
        return {key: seconds for key, seconds in found.items() if key not in unfinished}

    def _last_job(self) -> int | None:
        jobs = self._store.jobsList(None)
        return int(jobs.head().jobId()) if jobs.size() else None

    def _read(self, what: str, number: int) -> dict[str, Any] | None:
        try:
            return json.loads(self._json.writeValueAsString(getattr(self._store, what)(number)))
        except (Py4JJavaError, Py4JError):  # no longer, or not yet, in the record
            return None
