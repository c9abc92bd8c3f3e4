"""Streaming queries of somebody else's program as one black box: what they read, how long it took, what waits.

It only ever looks: at the progress that Spark keeps of each query, at its jobs, and at the list of executors. Nothing
is set on the session, the queries or their checkpoints; executors are asked for through Spark's own calls, and only on
`apply`.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, PenstockError
from penstock.dataflow.sinks import noop
from penstock.dataflow.sources import generate
from penstock.engines.ports import Applied
from penstock.engines.spark import jvm
from penstock.engines.spark.executors import negotiator_of
from penstock.engines.spark.metering.stages import Stages
from penstock.measure.estimators import ratio
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.plan import Plan, default_plan, diff

INPUT, QUERIES = "input", "queries"


@dataclass(slots=True)
class _Query:
    """What is known of one query: up to which batch, how many rows wait behind it, and how fast they come."""

    last: int = -1
    run: str | None = None  # of its last batch: it has another each time that it is started
    began_s: float | None = None  # its last batch; None before the first, which reads what had piled up
    ended_s: float = 0.0
    apart_s: float = 0.0  # the starts of its batches
    backlog: float = 0.0
    arriving: float = 0.0  # rows/s

    def saw(self, fresh: list[dict[str, Any]]) -> None:
        """Batches that have ended since.

        Each looks what there is when it begins, so that what they read came between their starts: behind a first batch
        of ten seconds comes one of a second, which reads what ten have brought.
        """
        self.run = fresh[-1].get("runId")
        if self.began_s is None:
            (first, *fresh) = fresh
            self.last, self.began_s, self.ended_s = first["batchId"], *_times_s(first)
            self.backlog = _backlog(first)
        if not fresh:
            return
        began_s, ended_s = _times_s(fresh[-1])
        backlog, batches = _backlog(fresh[-1]), fresh[-1]["batchId"] - self.last
        span_s = max(began_s - self.began_s, 1e-3)
        came = sum(one["numInputRows"] for one in fresh) * batches / len(fresh) + backlog - self.backlog
        self.arriving, self.apart_s = max(0.0, came) / span_s, span_s / batches
        self.last, self.began_s, self.ended_s, self.backlog = fresh[-1]["batchId"], began_s, ended_s, backlog

    def was_still(self, now_s: float, span_s: float) -> None:
        """No batch has ended, and none is being made: of one that is overdue no rows came."""
        if self.began_s is not None and now_s - self.ended_s > 2 * max(span_s, self.apart_s):
            self.arriving = 0.0


@dataclass(slots=True)
class _Sums:
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    timed: int = 0  # batches whose tasks' time is known
    busy_s: float = 0.0  # of those

    def times(self, factor: float) -> _Sums:
        return (
            self
            if factor <= 1
            else _Sums(
                batches=round(self.batches * factor),
                rows=round(self.rows * factor),
                seconds=self.seconds * factor,
                longest_s=self.longest_s,
                phases_s={phase: seconds * factor for phase, seconds in self.phases_s.items()},
                timed=self.timed,
                busy_s=self.busy_s,
            )
        )


class WatchedEngine:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._stages = Stages(spark)
        name = re.sub(r"[^A-Za-z0-9_]+", "_", spark.sparkContext.appName).strip("_") or "app"
        self.flow = Dataflow(name if name[0].isalpha() else f"app_{name}")
        # It stands for theirs and is never run; no rows of theirs go through a channel of ours.
        self.flow.source(INPUT, generate(int, schema="n bigint", rows=0)).sink(QUERIES, noop())
        self._queries: dict[str, _Query] = {}  # by id of the query, which survives its restarts
        self._running: dict[str, Any] = {}  # by id: what was running at the last look
        self._rows_total = 0
        self._since_s = time.time()
        self._generation = 1
        self._executors_seen = 0

    # ---- the contract

    @property
    def plan(self) -> Plan:
        executors, slots_each = self.executors()
        return default_plan(self.flow, slots=executors * slots_each)

    def executors(self) -> tuple[int, int]:
        """How many there are now, and the slots of one; a local master is one by itself."""
        if cores := self._cores():
            return len(cores), max(1, max(cores))
        return 1, self._slots_by_settings()

    def _cores(self) -> list[int]:
        executors = jvm.list_executors(self._spark)
        if not executors:
            return []
        allocation = jvm.ExecutorAllocation(self._spark)
        # An executor that is being decommissioned takes no tasks.
        return [executor.cores for executor in executors if allocation.is_active(executor.id)]

    def _slots_by_settings(self) -> int:
        """Of a local master, or of executors that are still to come."""
        context = self._spark.sparkContext
        if (local := re.match(r"local(?:\[(\d+|\*))?", context.master)) is not None:
            return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
        return max(1, int(context.getConf().get("spark.executor.cores") or context.defaultParallelism))

    def await_executors(self, patience_s: float) -> None:
        """A session may be there before its executors are."""
        deadline = time.monotonic() + patience_s
        while not self._spark.sparkContext.master.startswith("local") and not self._cores():
            if time.monotonic() > deadline or self.session_end() is not None:
                return
            time.sleep(0.5)

    def attach(self) -> None:
        """Note the last batch of each query that is already running; earlier batches are not counted."""
        for _, seen, progress in self._progress():
            query = self._queries[seen] = _Query()
            if batches := _with_work(progress):
                query.saw(batches[-1:])
        self._since_s = time.time()

    def observe(self) -> Window:
        now = time.time()
        span = max(now - self._since_s, 1e-3)
        pipelines, arriving, rows, backlog = [], 0.0, 0, 0.0
        self._stages.look()
        for name, seen, progress in self._progress():
            query = self._queries.setdefault(seen, _Query())
            fresh = [one for one in _with_work(progress) if one["batchId"] > query.last]
            # Code is compiled and Python started in the first batch of a run. Of a query that has ended it may be all.
            cold = [one for one in fresh[:1] if one["runId"] != query.run and seen in self._running]
            sums = _sums(fresh[len(cold) :], self._stages)
            if fresh and query.last >= 0:  # Spark keeps a hundred: of more there are, those that it keeps stand for all
                sums = sums.times((fresh[-1]["batchId"] - query.last) / len(fresh))
            if fresh:
                query.saw(fresh)
            elif not self._in_a_batch(seen):
                query.was_still(now, span)
            rows += sums.rows + sum(one["numInputRows"] for one in cold)
            backlog += query.backlog
            arriving += query.arriving
            pipelines.append(_pipeline(name, sums, query.backlog))
        self._rows_total += rows
        self._since_s = now
        executors, _ = self.executors()
        if executors != self._executors_seen:  # what was measured before was of another plan
            self._generation += self._executors_seen > 0
            self._executors_seen = executors
        return Window(
            start_s=now - span,
            end_s=now,
            generation=self._generation,
            external_rows_per_s=arriving,
            latency=None,
            pipelines=tuple(pipelines),
            operators=(
                self._operator(INPUT, rows, arriving, span, round(backlog)),
                self._operator(QUERIES, rows, rows / span, span, None),
            ),
        )

    def apply(self, plan: Plan) -> Applied:
        before, began = self.plan, time.monotonic()
        if (master := self._spark.sparkContext.master).startswith("local[") or master == "local":
            raise PenstockError(
                f"the program runs on {master}, one process that stays one; start it on a cluster, or watch it with "
                "mode='recommend'"
            )
        negotiator = negotiator_of(self._spark, warmed=False)
        negotiator.check(plan.slots)
        negotiator.settle(plan.slots)
        self._generation += 1
        self._executors_seen = self.executors()[0]
        return Applied(
            plan=self.plan,
            generation=self._generation,
            changed=str(diff(before, self.plan)),
            pause_s=0.0,
            stopped=(),
            took_s=time.monotonic() - began,
        )

    def session_end(self) -> str | None:
        """Return why nothing is left to watch, or None while the Spark session is active."""
        return "the program's Spark session has ended" if jvm.is_stopped(self._spark) else None

    # ---- what Spark says

    def _progress(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
        """(name, id, progress) of the queries that are running now, or were at the last look: they may have ended."""
        active = {str(query.id): query for query in self._spark.streams.active}
        looked_at, self._running = self._running | active, active
        found = []
        for query in looked_at.values():
            raw = [json.loads(report) for report in jvm.progress_newest_first(query)][::-1]
            # As it is: two names that become one would make one query of two.
            found.append((query.name or f"query_{str(query.id)[:8]}", str(query.id), raw))
        return found

    def _in_a_batch(self, seen: str) -> bool:
        """It works on rows now, and says nothing of those that come meanwhile."""
        if (query := self._running.get(seen)) is None:
            return False
        try:
            status = query.status
            return bool(status["isTriggerActive"] and status["isDataAvailable"])
        except jvm.JvmError:  # it has ended since
            return False

    def _operator(self, name: str, rows: int, arriving: float, span: float, backlog: int | None) -> OperatorWindow:
        return OperatorWindow(
            operator=name,
            pipeline=QUERIES,
            replicas=None if name == INPUT else 1,
            rows_in_total=self._rows_total,
            rows_out_total=self._rows_total if name == INPUT else None,
            rows_in=rows,
            rows_out=rows if name == INPUT else None,
            input_rows_per_s=arriving,
            processed_rows_per_s=rows / span,
            true_rows_per_s=None,
            selectivity=1.0 if name == INPUT else None,
            seconds_per_row=None,
            utilisation=None,
            backlog_rows=backlog,
            state_rows=None,
            state_bytes=None,
        )


def _with_work(progress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Batches that were made; Spark also tells of the times when there was nothing to do."""
    return [one for one in progress if "addBatch" in one["durationMs"]]


def _times_s(progress: dict[str, Any]) -> tuple[float, float]:
    """When a batch began, and when it ended."""
    began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began_s, began_s + progress["durationMs"].get("triggerExecution", 0) / 1000


def _sums(progress: list[dict[str, Any]], stages: Stages) -> _Sums:
    sums = _Sums()
    for one in progress:
        seconds = one["durationMs"].get("triggerExecution", 0) / 1000
        if one["numInputRows"] > 0:  # batches without rows say nothing of the cost of rows
            sums.batches += 1
            sums.rows += one["numInputRows"]
            sums.seconds += seconds
            sums.longest_s = max(sums.longest_s, seconds)
            if (busy_s := stages.busy_s(one["runId"], one["batchId"])) is not None:
                sums.timed, sums.busy_s = sums.timed + 1, sums.busy_s + busy_s
            for phase, milliseconds in one["durationMs"].items():
                sums.phases_s[phase] = sums.phases_s.get(phase, 0.0) + milliseconds / 1000
    return sums


def _pipeline(name: str, sums: _Sums, backlog: float) -> PipelineWindow:
    return PipelineWindow(
        pipeline=name,
        operators=(INPUT, QUERIES),
        batches=sums.batches,
        rows_in=sums.rows,
        batch_s=ratio(sums.seconds, sums.batches),
        batch_max_s=sums.longest_s if sums.batches else None,
        phases_s={phase: seconds / sums.batches for phase, seconds in sums.phases_s.items()},
        busy_s=sums.busy_s * sums.batches / sums.timed if sums.timed else None,
        backlog_rows=round(backlog),
    )


def _backlog(progress: dict[str, Any]) -> float:
    """Rows between the end of a batch and the latest offset that its sources had, where both are told in numbers.

    An offset may count rows (Kafka) or not (seconds); the batch itself says how many rows there are to one. A source
    that takes all there is in each batch has no backlog: what it does not keep up with shows in its batches.
    """
    total = 0.0
    for source in progress.get("sources", ()):
        start, end, latest = (_number(source.get(key)) for key in ("startOffset", "endOffset", "latestOffset"))
        if end is None or latest is None or latest <= end:
            continue
        # A first batch does not say where it began, and a topic that has lost its oldest rows does not begin at 0.
        taken, rows = 0.0 if start is None else end - start, source.get("numInputRows") or 0
        total += (latest - end) * (rows / taken if taken > 0 and rows > 0 else 1.0)
    return total


def _number(offset: Any) -> float | None:
    """The sum of all whole numbers in an offset; None where it has none."""
    if isinstance(offset, bool) or offset is None:
        return None
    if isinstance(offset, int | float):
        return float(offset)
    if isinstance(offset, str):
        try:
            return _number(json.loads(offset))
        except ValueError:
            return None
    parts = offset.values() if isinstance(offset, dict) else offset
    known = [number for part in parts if (number := _number(part)) is not None]
    return sum(known) if known else None
