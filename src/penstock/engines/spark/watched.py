"""The streaming queries of an existing program, watched as one operator: its input, its duration and its backlog.

Watching is passive. It reads the progress reports that Spark keeps of each query, its jobs, and the list of executors.
It changes nothing in the session, the queries or their checkpoints. Executors are requested through Spark's own calls,
and only by `apply`.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Dataflow, PenstockError
from penstock.dataflow.sinks import noop
from penstock.dataflow.sources import generate
from penstock.engines.ports import Applied
from penstock.engines.spark import jvm
from penstock.engines.spark.executors import negotiator_of
from penstock.engines.spark.metering.stages import StageTimes
from penstock.engines.spark.queries.progress import Progress, batches_newest_first
from penstock.measure.estimators import ratio
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.plan import Plan, default_plan, diff

INPUT, QUERIES = "input", "queries"  # the two operators that represent a watched program


@dataclass(slots=True)
class QueryLoad:
    """The load of one query: the last batch that was counted, its backlog and the rate at which rows arrive."""

    last_batch: int = -1
    run_id: str | None = None  # run id of the last batch
    began_s: float | None = None  # start of the last batch; None before the first one, which reads an old backlog
    ended_s: float = 0.0
    batch_interval_s: float = 0.0  # mean time between the starts of two batches
    backlog_rows: float = 0.0
    arriving_rows_per_s: float = 0.0

    def add_batches(self, batches: list[Progress]) -> None:
        """Add batches that have ended since the last call.

        A batch determines its rows when it begins, so the rows of a batch arrived between the start of the previous one
        and its own. Dividing by the duration of the batch would be wrong: after a cold batch of ten seconds, a batch of
        one second reads the rows of ten seconds.
        """
        self.run_id = batches[-1].run_id
        if self.began_s is None:
            first, *batches = batches
            self._set_last(first)
        if not batches or self.began_s is None:
            return
        last = batches[-1]
        count = last.batch_id - self.last_batch  # Spark may have discarded some of the reports
        began_before_s, backlog_before = self.began_s, self.backlog_rows
        self._set_last(last)
        elapsed_s = max(last.began_s - began_before_s, 1e-3)
        rows_read = sum(batch.num_input_rows for batch in batches) * count / len(batches)
        arrived = rows_read + self.backlog_rows - backlog_before
        self.arriving_rows_per_s, self.batch_interval_s = max(0.0, arrived) / elapsed_s, elapsed_s / count

    def _set_last(self, batch: Progress) -> None:
        self.last_batch, self.began_s, self.ended_s = batch.batch_id, batch.began_s, batch.ended_s
        self.backlog_rows = backlog_rows(batch)

    def add_idle_time(self, now_s: float, window_s: float) -> None:
        """Note that no batch has ended and none is running. If a batch is overdue, no rows are arriving."""
        if self.began_s is not None and now_s - self.ended_s > 2 * max(window_s, self.batch_interval_s):
            self.arriving_rows_per_s = 0.0


@dataclass(slots=True)
class _BatchSums:
    """Sums over the batches of one query in one window."""

    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    max_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    timed_batches: int = 0  # batches whose task time is known
    busy_s: float = 0.0  # task time of these batches

    def add(self, batch: Progress, busy_s: float | None) -> None:
        self.batches += 1
        self.rows += batch.num_input_rows
        self.seconds += batch.batch_s
        self.max_s = max(self.max_s, batch.batch_s)
        if busy_s is not None:
            self.timed_batches, self.busy_s = self.timed_batches + 1, self.busy_s + busy_s
        for phase, seconds in batch.phases_s.items():
            self.phases_s[phase] = self.phases_s.get(phase, 0.0) + seconds

    def extrapolate(self, factor: float) -> None:
        """Scale the sums, because Spark has discarded the reports of some batches."""
        if factor > 1:
            self.batches, self.rows = round(self.batches * factor), round(self.rows * factor)
            self.seconds *= factor
            self.phases_s = {phase: seconds * factor for phase, seconds in self.phases_s.items()}

    def window(self, name: str, backlog: float) -> PipelineWindow:
        return PipelineWindow(
            pipeline=name,
            operators=(INPUT, QUERIES),
            batches=self.batches,
            rows_in=self.rows,
            batch_s=ratio(self.seconds, self.batches),
            batch_max_s=self.max_s if self.batches else None,
            phases_s={phase: seconds / self.batches for phase, seconds in self.phases_s.items()},
            busy_s=self.busy_s * self.batches / self.timed_batches if self.timed_batches else None,
            backlog_rows=round(backlog),
        )


class _Reports(NamedTuple):
    """The progress reports of one query, the oldest first."""

    name: str
    id: str  # survives restarts of the query
    batches: list[Progress]


class WatchedEngine:
    """An engine for the queries of another program. Its plans consist of a number of slots only."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._stages = StageTimes(spark)
        name = re.sub(r"[^A-Za-z0-9_]+", "_", str(spark.sparkContext.appName)).strip("_") or "app"
        self.flow = Dataflow(name if name[0].isalpha() else f"app_{name}")
        # This dataflow represents the program and never runs.
        self.flow.source(INPUT, generate(int, schema="n bigint", rows=0)).sink(QUERIES, noop())
        self._loads: dict[str, QueryLoad] = {}  # query id -> load
        self._running: dict[str, StreamingQuery] = {}  # query id -> query that ran last time
        self._rows_total = 0
        self._window_began_s = time.time()
        self._generation = 1
        self._executors_before = 0

    # ---- executors

    @property
    def plan(self) -> Plan:
        executors, slots_per_executor = self.executors()
        return default_plan(self.flow, slots=executors * slots_per_executor)

    def executors(self) -> tuple[int, int]:
        """Return the number of executors and the slots of each; a local master counts as one executor."""
        if cores := self._executor_cores():
            return len(cores), max(1, max(cores))
        return 1, self._configured_slots()

    def _executor_cores(self) -> list[int]:
        executors = jvm.list_executors(self._spark)
        if not executors:
            return []
        allocation = jvm.ExecutorAllocation(self._spark)
        # An executor that is being decommissioned takes no tasks.
        return [executor.cores for executor in executors if allocation.is_active(executor.id)]

    def _configured_slots(self) -> int:
        """Return the slots of a local master, or of an executor that has not registered yet."""
        context = self._spark.sparkContext
        if (local := re.match(r"local(?:\[(\d+|\*))?", str(context.master))) is not None:
            return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
        return max(1, int(context.getConf().get("spark.executor.cores") or context.defaultParallelism))

    def await_executors(self, patience_s: float) -> None:
        """Wait until an executor has registered, but not longer than `patience_s`."""
        deadline = time.monotonic() + patience_s
        while not str(self._spark.sparkContext.master).startswith("local") and not self._executor_cores():
            if time.monotonic() > deadline or self.session_end() is not None:
                return
            time.sleep(0.5)

    def apply(self, plan: Plan) -> Applied:
        before, began = self.plan, time.monotonic()
        if (master := str(self._spark.sparkContext.master)).startswith("local[") or master == "local":
            raise PenstockError(
                f"The program runs on master '{master}', which is a single process. Start it on a cluster, or watch it "
                "with mode='recommend'."
            )
        negotiator = negotiator_of(self._spark, warms_up=False)
        negotiator.check(plan.slots)
        negotiator.resize(plan.slots)
        self._generation += 1
        self._executors_before = self.executors()[0]
        return Applied(
            plan=self.plan,
            generation=self._generation,
            changed=str(diff(before, self.plan)),
            pause_s=0.0,
            stopped=(),
            took_s=time.monotonic() - began,
        )

    # ---- observing

    def attach(self) -> None:
        """Note the last batch of each query that is already running; earlier batches are not counted."""
        for _, query_id, batches in self._reports():
            load = self._loads[query_id] = QueryLoad()
            if batches:
                load.add_batches(batches[-1:])
        self._window_began_s = time.time()

    def observe(self) -> Window:
        now = time.time()
        window_s = max(now - self._window_began_s, 1e-3)
        pipelines, arriving, rows, backlog = [], 0.0, 0, 0.0
        self._stages.refresh()
        for reports in self._reports():
            load = self._loads.setdefault(reports.id, QueryLoad())
            sums, cold_rows = self._add_query(reports, load, now, window_s)
            rows += sums.rows + cold_rows
            backlog += load.backlog_rows
            arriving += load.arriving_rows_per_s
            pipelines.append(sums.window(reports.name, load.backlog_rows))
        self._rows_total += rows
        self._window_began_s = now
        executors, _ = self.executors()
        if executors != self._executors_before:  # earlier measurements belong to another plan
            self._generation += self._executors_before > 0
            self._executors_before = executors
        return Window(
            start_s=now - window_s,
            end_s=now,
            generation=self._generation,
            external_rows_per_s=arriving,
            latency=None,
            pipelines=tuple(pipelines),
            operators=(
                self._operator_window(INPUT, rows, arriving, window_s, round(backlog)),
                self._operator_window(QUERIES, rows, rows / window_s, window_s, None),
            ),
        )

    def _add_query(self, reports: _Reports, load: QueryLoad, now_s: float, window_s: float) -> tuple[_BatchSums, int]:
        """Update the load of a query; return the sums over its new batches and the rows of a cold batch."""
        batches = [batch for batch in reports.batches if batch.batch_id > load.last_batch]
        sums, cold_rows = _BatchSums(), 0
        # The first batch of a start compiles code and starts Python. If the query has ended, it may be the only one.
        if batches and batches[0].run_id != load.run_id and reports.id in self._running:
            cold_rows = batches[0].num_input_rows
            warm = batches[1:]
        else:
            warm = batches
        for batch in warm:
            if batch.num_input_rows > 0:  # an empty batch does not show the cost of rows
                sums.add(batch, self._stages.busy_s(batch.run_id, batch.batch_id))
        if batches and load.last_batch >= 0:  # Spark may have discarded older reports
            sums.extrapolate((batches[-1].batch_id - load.last_batch) / len(batches))
        if batches:
            load.add_batches(batches)
        elif not self._is_in_batch(reports.id):
            load.add_idle_time(now_s, window_s)
        return sums, cold_rows

    def session_end(self) -> str | None:
        """Return why nothing is left to watch, or None while the Spark session is active."""
        return "The Spark session of the program has ended." if jvm.is_stopped(self._spark) else None

    def _reports(self) -> list[_Reports]:
        """Return the reports of the queries that are running, or that were running at the last observation."""
        active = {str(query.id): query for query in self._spark.streams.active}
        queries, self._running = self._running | active, active
        # Do not normalise the names: two different names could become equal.
        return [
            _Reports(query.name or f"query_{query_id[:8]}", query_id, list(batches_newest_first(query))[::-1])
            for query_id, query in queries.items()
        ]

    def _is_in_batch(self, query_id: str) -> bool:
        """Return whether a query is processing rows, during which it does not report the rows that arrive."""
        if (query := self._running.get(query_id)) is None:
            return False
        try:
            status = query.status
            return bool(status["isTriggerActive"] and status["isDataAvailable"])
        except jvm.JvmError:  # the query has ended
            return False

    def _operator_window(
        self, name: str, rows: int, arriving: float, window_s: float, backlog: int | None
    ) -> OperatorWindow:
        is_input = name == INPUT
        return OperatorWindow(
            operator=name,
            pipeline=QUERIES,
            replicas=None if is_input else 1,
            rows_in_total=self._rows_total,
            rows_out_total=self._rows_total if is_input else None,
            rows_in=rows,
            rows_out=rows if is_input else None,
            input_rows_per_s=arriving,
            processed_rows_per_s=rows / window_s,
            true_rows_per_s=None,
            selectivity=1.0 if is_input else None,
            seconds_per_row=None,
            utilisation=None,
            backlog_rows=backlog,
            state_rows=None,
            state_bytes=None,
        )


def backlog_rows(progress: Progress) -> float:
    """Return the rows between the end of a batch and the latest offsets of its sources, if both are numbers.

    Offsets count rows for some sources (Kafka) and something else for others (such as seconds). The batch itself shows
    how many rows one unit contains. A source that reads everything available in each batch has no backlog; its overload
    shows in the duration of its batches.
    """
    total = 0.0
    for source in progress.sources:
        start, end, latest = map(_offset_sum, (source.start_offset, source.end_offset, source.latest_offset))
        if end is None or latest is None or latest <= end:
            continue
        # The first batch has no start offset, and a topic that has deleted its oldest rows does not begin at 0.
        units = 0.0 if start is None else end - start
        rows_per_unit = source.num_input_rows / units if units > 0 and source.num_input_rows > 0 else 1.0
        total += (latest - end) * rows_per_unit
    return total


def _offset_sum(offset: Any) -> float | None:
    """Return the sum of all numbers in an offset, or None if it contains none."""
    if isinstance(offset, bool) or offset is None:
        return None
    if isinstance(offset, int | float):
        return float(offset)
    if isinstance(offset, str):
        try:
            return _offset_sum(json.loads(offset))
        except ValueError:
            return None
    parts = offset.values() if isinstance(offset, dict) else offset
    known = [number for part in parts if (number := _offset_sum(part)) is not None]
    return sum(known) if known else None
