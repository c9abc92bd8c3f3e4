"""The streaming queries of an existing program, watched as one operator: its input, its duration and its backlog.

Watching is passive. It reads the progress reports that Spark keeps of each query, its jobs, the list of executors, and
for file sources the list of files. It changes nothing in the session, the queries or their checkpoints. Executors are
requested through Spark's own calls, and only by `apply`.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Dataflow, PenstockError
from penstock.dataflow.sinks import noop
from penstock.dataflow.sources import generate
from penstock.engines.ports import Applied
from penstock.engines.spark import jvm
from penstock.engines.spark.error_text import root_cause
from penstock.engines.spark.executors import negotiator_of
from penstock.engines.spark.metering.stages import StageTimes
from penstock.engines.spark.queries.progress import Progress, reports_after
from penstock.engines.spark.watched.history import Executors, QueryHistory
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.plan import Plan, default_plan, diff

INPUT, QUERIES = "input", "queries"  # the two operators that represent a watched program
_HORIZON = 3  # windows over which the arrival rate is measured
_LISTING = 20.0  # the listing of input files may take up to 1 / 20 of the time


class _Reports(NamedTuple):
    """A query and its progress reports since the last observation, the oldest first."""

    name: str
    id: str  # survives restarts of the query
    query: StreamingQuery
    progress: list[Progress]


class WatchedEngine:
    """An engine for the queries of another program. Its plans consist of a number of slots only."""

    def __init__(self, spark: SparkSession, *, max_executors: int = 1) -> None:
        self._spark = spark
        self._max_executors = max_executors
        self._stages = StageTimes(spark, from_now=False)
        name = re.sub(r"[^A-Za-z0-9_]+", "_", str(spark.sparkContext.appName)).strip("_") or "app"
        self.flow = Dataflow(name if name[0].isalpha() else f"app_{name}")
        # This dataflow represents the program and never runs.
        self.flow.source(INPUT, generate(int, schema="n bigint", rows=0)).sink(QUERIES, noop())
        self._histories: dict[str, QueryHistory] = {}  # query id -> history
        self._next_listing_s: dict[str, float] = {}  # query id -> earliest time of the next listing of its files
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
        executors = self._executors(changed=False)
        for reports in self._reports():
            history = self._histories[reports.id] = QueryHistory()
            batches = [progress for progress in reports.progress if progress.ran_batch]
            history.add(batches[-1:], lambda run_id, batch_id: None, executors, is_running=True)
        self._window_began_s = time.time()

    def observe(self) -> Window:
        reports = self._reports()  # before the stages, so that the stages of each reported batch are recorded
        self._stages.refresh()
        now = time.time()
        window_s = max(now - self._window_began_s, 1e-3)
        count, _ = self.executors()
        executors = self._executors(changed=count != self._executors_before and self._executors_before > 0)
        rows, pipelines = 0, []
        for query in reports:
            all_rows, pipeline = self._pipeline(query, executors, now, window_s)
            rows += all_rows
            pipelines.append(pipeline)
        self._rows_total += rows
        self._window_began_s = now
        self._generation += executors.changed  # earlier measurements belong to another plan
        self._executors_before = count
        backlogs = [pipeline.backlog_rows for pipeline in pipelines]
        known = [backlog for backlog in backlogs if backlog is not None]
        arriving = [pipeline.input_rows_per_s for pipeline in pipelines if pipeline.input_rows_per_s is not None]
        rate = sum(arriving) if arriving or not pipelines else None
        return Window(
            start_s=now - window_s,
            end_s=now,
            generation=self._generation,
            external_rows_per_s=rate,
            latency=None,
            pipelines=tuple(pipelines),
            operators=(
                self._operator_window(INPUT, rows, rate, window_s, sum(known) if len(known) == len(backlogs) else None),
                self._operator_window(QUERIES, rows, rows / window_s, window_s, None),
            ),
        )

    def _executors(self, *, changed: bool) -> Executors:
        count, slots_per_executor = self.executors()
        return Executors(
            slots=count * slots_per_executor,
            slots_per_executor=slots_per_executor,
            max_executors=self._max_executors,
            changed=changed,
            shared=len(self._running) > 1,
        )

    def _pipeline(
        self, reports: _Reports, executors: Executors, now_s: float, window_s: float
    ) -> tuple[int, PipelineWindow]:
        """Update the history of a query; return the rows that it read and its window."""
        history = self._histories.setdefault(reports.id, QueryHistory())
        is_running = reports.id in self._running
        if executors.changed:
            history.forget_executors()
        history.reports_backlog = self._reports_backlog(reports.query)
        sums = history.add(reports.progress, self._stages.stages, executors, is_running=is_running)
        in_batch = self._is_in_batch(reports.id)
        if history.files is not None and is_running:
            self._list_files(reports, history, now_s, in_batch=in_batch)
        elif not sums.all_rows and not in_batch:
            history.add_idle_time(now_s, window_s)
        window = history.window(
            reports.name,
            (INPUT, QUERIES),
            sums,
            self._trigger(reports.query),
            executors,
            now_s=now_s,
            horizon_s=_HORIZON * window_s,
            limit_rows=self._row_limit(reports.query),
        )
        if is_running:
            return sums.all_rows, window
        error = self._error(reports.query)
        return sums.all_rows, replace(window, state="ended" if error is None else "crashed", error=error)

    def _list_files(self, reports: _Reports, history: QueryHistory, now_s: float, *, in_batch: bool) -> None:
        if now_s < self._next_listing_s.get(reports.id, 0.0):
            return
        try:
            sources = jvm.file_sources(reports.query)
        except jvm.JvmError:  # the query has ended, or its folder cannot be listed now
            return
        history.add_files(sources, now_s, in_batch=in_batch)
        self._next_listing_s[reports.id] = now_s + _LISTING * (time.time() - now_s)

    def _trigger(self, query: StreamingQuery) -> jvm.Trigger | None:
        try:
            return jvm.trigger(query)
        except (jvm.JvmError, AttributeError):
            return None

    def _reports_backlog(self, query: StreamingQuery) -> bool:
        try:
            return jvm.reports_backlog(self._spark, query)
        except (jvm.JvmError, AttributeError):  # the query has ended
            return False

    def _row_limit(self, query: StreamingQuery) -> int | None:
        try:
            return jvm.row_limit(query)
        except (jvm.JvmError, AttributeError):
            return None

    def _error(self, query: StreamingQuery) -> str | None:
        """Return the line of the error that ended a query, or None if it was stopped or has finished."""
        try:
            error = query.exception()
        except jvm.JvmError:
            return None
        return None if error is None else root_cause(error)

    def session_end(self) -> str | None:
        """Return why nothing is left to watch, or None while the Spark session is active."""
        return "The Spark session of the program has ended." if jvm.is_stopped(self._spark) else None

    def _reports(self) -> list[_Reports]:
        """Return the reports of the queries that are running, or that were running at the last observation."""
        active = {str(query.id): query for query in self._spark.streams.active}
        queries, self._running = self._running | active, active
        # Do not normalise the names: two different names could become equal.
        return [
            _Reports(query.name or f"query_{query_id[:8]}", query_id, query, self._new_reports(query_id, query))
            for query_id, query in queries.items()
        ]

    def _new_reports(self, query_id: str, query: StreamingQuery) -> list[Progress]:
        history = self._histories.get(query_id)
        return reports_after(query, 0.0 if history is None else history.last_report_s)

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
        self, name: str, rows: int, arriving: float | None, window_s: float, backlog: int | None
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
