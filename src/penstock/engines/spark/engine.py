"""The Spark engine runs one dataflow under one plan at a time and changes the plan while the dataflow runs.

The run directory holds everything: the committed plan (`plan.json`), `checkpoints/`, `channels/`, `sources/`, `hold/`.
A change prepares new checkpoints beside the old ones and starts the new queries behind a closed gate. Replacing
`plan.json` is the commit, which also opens the gate. A failure before the commit leaves the old plan in force.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Dataflow, Kind, PenstockError
from penstock.dataflow.load import modules_by_value
from penstock.dataflow.local_paths import local_directory
from penstock.dataflow.sources import Generate, Replay
from penstock.engines.ports import Applied
from penstock.engines.spark.change.changeover import Changeover
from penstock.engines.spark.change.executor_change import ExecutorChange
from penstock.engines.spark.change.query_changes import QueryChanges, plan_query_changes
from penstock.engines.spark.change.resume_check import (
    apply_new_declarations,
    check_same_aggregates,
    check_same_dataflow,
    endpoints_of,
    shape_of,
)
from penstock.engines.spark.class_archive import keep_archive
from penstock.engines.spark.compile.compiler import Compiled, SharedQueryError
from penstock.engines.spark.error_text import first_line
from penstock.engines.spark.executors import ExecutorsError, Negotiator, negotiator_of
from penstock.engines.spark.executors.drift import ExecutorDrift, GroupDrift
from penstock.engines.spark.log_files import link_jvm_log
from penstock.engines.spark.metering.meter import QueryMeter
from penstock.engines.spark.queries.query_runner import QueryRunner
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.gate import hold_file
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.committed import Committed, Query, QueryInput, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.run_directory.journal import Journal
from penstock.engines.spark.run_directory.orphans import await_orphan, forget_jvm, note_jvm
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sinks import writers
from penstock.engines.spark.sinks.folder_output import FolderOutput
from penstock.engines.spark.sources.factory import create_source
from penstock.engines.spark.sources.python_processes import start_python_processes
from penstock.engines.startup import StartupPhases
from penstock.measure.window import Window
from penstock.plan import Plan, check_successor, default_plan, diff, pipelines, validated, with_remaining_threads
from penstock.plan.counts import slots_text

# Phases of a start.
_SESSION, _COMPILATION, _QUERIES, _FIRST_BATCH = "Spark session", "compilation", "query start", "first batch"


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """The parts of an engine that exist once its run directory has been opened."""

    context: RunContext
    queries: QueryRunner
    meter: QueryMeter


class SparkEngine:
    """Runs a dataflow on Spark in the run directory `at`, and resumes the run that the directory already contains.

    plan: the plan to start with; None takes the default plan, or the plan of the run that is resumed.
    spark: an existing session; None creates one with `master` and `confs` and stops it at the end.
    start_cancelled: when another thread sets it, `start` ends with an error at its next step.
    """

    def __init__(
        self,
        flow: Dataflow,
        at: str | Path,
        *,
        plan: Plan | None = None,
        spark: SparkSession | None = None,
        master: str = "local[2]",
        confs: dict[str, str] | None = None,
        settings: EngineSettings | None = None,
        start_cancelled: threading.Event | None = None,
    ) -> None:
        flow.check()
        if plan is not None:
            plan = validated(flow, plan)
        self.flow = flow
        self.run = local_directory(at).resolve()
        self._settings = settings or EngineSettings()
        self._start_cancelled = start_cancelled or threading.Event()
        self._master = master
        self._confs = confs
        self._requested_plan = plan
        self._spark = spark
        self._owns_spark = spark is None
        self._directory = RunDirectory(self.run, self._settings.kafka)
        self._journal = Journal(self.run)
        self._open_run: _OpenRun | None = None
        self._committed: Committed | None = None
        self._lock = threading.RLock()  # a plan change excludes observation and recovery
        self._executors: Negotiator | None = None
        self._drift = ExecutorDrift(self._settings.executor_patience_s)
        self._group_drift = GroupDrift(self._settings.executor_patience_s)
        self._outputs: list[writers.Output] = []  # to be claimed by the start
        self._messages: list[str] = []  # events of the start, reported by the next `recover`
        self._startup = StartupPhases()

    # ---- state

    @property
    def plan(self) -> Plan:
        return self._in_force().plan

    @property
    def startup_s(self) -> dict[str, float]:
        return dict(self._startup.seconds)

    @property
    def generation(self) -> int:
        """The number of the plan in force, counted from 1; 0 before the start."""
        return self._committed.generation if self._committed else 0

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries of the plan in force, upstream first."""
        return self._committed.queries if self._committed else ()

    @property
    def executors(self) -> Negotiator:
        if self._executors is None:
            raise PenstockError("The run has not been started, so it has no executors yet. Start it first.")
        return self._executors

    def running(self, query: Query) -> StreamingQuery:
        """Return Spark's handle of a query."""
        return self._opened().queries.running[query.checkpoint].query

    def run_id(self, query: Query) -> str:
        """Return Spark's id of the current start of a query; it changes with each restart."""
        return str(self.running(query).runId)

    def position(self, query: Query, source: QueryInput) -> Offset:
        """Return the offset up to which a query has read one of its inputs: the end of its last committed batch."""
        return self._directory.position(query, source)

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Return the rows of a memory sink."""
        return writers.memory_rows(self.run, sink)

    def _opened(self) -> _OpenRun:
        if self._open_run is None:
            raise PenstockError("The run has not been started. Start it first.")
        return self._open_run

    def _in_force(self) -> Committed:
        if self._committed is None:
            raise PenstockError("The run has not been started, so no plan is in force yet. Start it first.")
        return self._committed

    # ---- starting and stopping

    def start(self) -> None:
        phases = self._startup = StartupPhases()
        self.run.mkdir(parents=True, exist_ok=True)
        previous = Committed.load(self.run)
        if previous is not None:
            check_same_dataflow(previous, self.flow, self.run)
        self._outputs = self._find_outputs(is_resumed=previous is not None)
        for module in modules_by_value(self.flow):  # workers cannot import these modules
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        await_orphan(self.run)
        if self._spark is None:
            self._spark = session(self._master, f"penstock {self.flow.name}", self._confs, run=self.run)
            if self._master.startswith("local"):  # executors of a cluster start Python when they register
                start_python_processes(self._spark)
        link_jvm_log(self.run)
        phases.end(_SESSION)
        note_jvm(self.run, self._spark)
        self._executors = negotiator_of(
            self._spark,
            patience_s=self._settings.executor_patience_s,
            directory=self.run,
            outputs=[output.folder.absolute() for output in self._outputs if isinstance(output, FolderOutput)],
            cancelled=self._start_cancelled,
        )
        for checked in (self._requested_plan, None if previous is None else previous.plan):
            if checked is not None:
                self._executors.check_groups(checked.groups)
        if previous is None:
            self._start_new(self._spark, self._executors)
        else:
            self._resume(self._spark, self._executors, previous)
            if self._requested_plan is not None:
                requested = self._requested_plan
                if requested.groups or self.plan.groups:
                    if not diff(self.plan, requested).empty:
                        self.apply(requested)
                else:
                    plan = requested.replace(slots=self._executors.start(requested.slots))
                    if not diff(self.plan, plan).empty:
                        self._record_slots(plan.slots)
                        self.apply(plan)
        routing = self._settings.routing
        if routing is not None and routing != self.plan.routing:
            self.apply(self.plan.replace(routing=routing))
        phases.end(_QUERIES)
        self._start_clocks(self._opened())
        keep_archive()
        phases.end(_FIRST_BATCH)

    def _start_clocks(self, run: _OpenRun) -> None:
        """Start the clocks of paced sources once all queries can take rows, so that no row waits for the start."""
        if any(isinstance(operator.source, Replay | Generate) for operator in self.flow.operators):
            run.queries.await_first_batches(self.queries, self.plan)
        for source in run.context.sources.values():
            source.start_clock()
        run.meter.begin()

    def _start_new(self, spark: SparkSession, executors: Negotiator) -> None:
        requested = self._requested_plan
        slots = executors.start(None) if requested is None else executors.start(requested.slots, requested.groups)
        plan = default_plan(self.flow, slots=slots) if requested is None else requested.replace(slots=slots)
        plan = validated(self.flow, plan)
        run = self._open(spark, executors, None)
        try:
            changes, queries = self._start_queries(run, plan)
        except SharedQueryError:
            if requested is not None:
                raise
            plan = default_plan(self.flow, slots=slots, share_queries=False)
            changes, queries = self._start_queries(run, plan)
        self._claim_outputs()  # late, because it may delete the output of an earlier run
        self._commit(plan, changes, tuple(queries))

    def _start_queries(self, run: _OpenRun, plan: Plan) -> tuple[QueryChanges, list[Query]]:
        changes = plan_query_changes(self.flow, None, plan)
        changeover = Changeover(run.context, run.queries, changes, None)
        return changes, changeover.execute(on_compiled=lambda: self._startup.end(_COMPILATION))

    def _resume(self, spark: SparkSession, executors: Negotiator, previous: Committed) -> None:
        plan = previous.plan.replace(slots=executors.start(previous.plan.slots, previous.plan.groups))
        plan = validated(self.flow, with_remaining_threads(self.flow, plan))
        run = self._open(spark, executors, previous)
        self._committed = msgspec.structs.replace(previous, plan=plan, endpoints=endpoints_of(self.flow))
        for query in previous.queries:
            checkpoint = self._directory.checkpoint(query)
            planned = checkpoint.offsets(checkpoint.planned())
            for source in query.inputs:
                if isinstance(source, SourceInput):
                    run.context.sources[source.operator].resume(planned.get(source.name, source.start))
        self._messages += apply_new_declarations(previous, self.flow, run.context.sources)
        self._claim_outputs()
        run.queries.start_all(previous.queries, plan, on_compiled=partial(self._compiled, previous))
        self._committed = msgspec.structs.replace(self._committed, aggregates=run.queries.aggregates())
        self._committed.save(self.run)
        self._messages += self._journal.report_interrupted(previous.generation)

    def _compiled(self, previous: Committed, queries: list[Compiled]) -> None:
        self._startup.end(_COMPILATION)
        for compiled in queries:
            check_same_aggregates(previous, compiled.aggregates, self.run)

    def _open(self, spark: SparkSession, executors: Negotiator, previous: Committed | None) -> _OpenRun:
        """Delete what the committed plan does not name, and open the sources."""
        self._directory.delete_unused(previous)
        sources = {}
        for operator in self.flow.operators:
            if operator.kind is Kind.SOURCE:
                sources[operator.name] = create_source(operator, self.run / "sources")
        context = RunContext(
            spark=spark,
            flow=self.flow,
            directory=self._directory,
            sources=sources,
            settings=self._settings,
            executors=executors,
            start_cancelled=self._start_cancelled,
        )
        meter = QueryMeter(context)
        queries = QueryRunner(context, on_start=meter.query_started, on_stop=meter.query_stopped)
        self._open_run = _OpenRun(context, queries, meter)
        return self._open_run

    def _find_outputs(self, *, is_resumed: bool) -> list[writers.Output]:
        """Return the places to which the sinks write; raise PenstockError if a sink may not write to its place."""
        outputs = []
        for operator in self.flow.operators:
            if operator.sink is not None:
                output = writers.output_of(operator.name, operator.sink, self.run, is_resumed=is_resumed)
                if output is not None:
                    output.check()
                    outputs.append(output)
        return outputs

    def _claim_outputs(self) -> None:
        for output in self._outputs:
            output.claim()

    def restart(self, query: Query) -> None:
        """Stop a query and start it again under the same plan."""
        with self._lock:
            queries = self._opened().queries
            queries.stop(queries.running[query.checkpoint])
            queries.start(query, queries.pipeline(query, self.plan))

    def stop(self) -> None:
        with self._lock:
            if self._open_run is not None:
                is_cancelled = self._start_cancelled.is_set()
                self._open_run.queries.stop_all(0.0 if is_cancelled else self._settings.drain_patience_s)
                forget_jvm(self.run)
            if self._owns_spark and self._spark is not None:
                self._spark.stop()
                self._spark = None

    # ---- changing the plan

    def apply(self, plan: Plan) -> Applied:
        with self._lock:
            began = time.monotonic()
            committed = self._in_force()
            plan = validated(self.flow, plan)
            check_successor(self.flow, committed.plan, plan)
            self.executors.check(plan.slots)
            self.executors.check_groups(plan.groups)
            requested_slots = plan.slots
            executors = ExecutorChange(self.executors, committed.plan, plan)
            plan = executors.obtain()  # the old plan continues while they start
            try:
                applied = self._change_queries(committed, plan)
            except BaseException:
                executors.restore()
                raise
            available_slots = executors.release()  # last, because the old plan needed them
            if available_slots is not None:
                self._record_slots(available_slots)
            changed = applied.changed
            if self.plan.slots != requested_slots:
                changed = f"{changed}; {requested_slots} slots were requested and {self.plan.slots} are available"
            took_s = time.monotonic() - began
            return msgspec.structs.replace(applied, plan=self.plan, changed=changed, took_s=took_s)

    def _change_queries(self, committed: Committed, plan: Plan) -> Applied:
        """Apply all parts of a new plan except its executors."""
        changed = str(diff(committed.plan, plan))
        changes = plan_query_changes(self.flow, committed, plan)
        if not changes.start and not changes.stop:
            if plan != committed.plan:
                self._commit(plan, changes, committed.queries)
                self._clean_up(before=committed)
            return Applied(plan=plan, generation=self.generation, changed=changed, pause_s=0.0, stopped=())
        run = self._opened()
        changeover = Changeover(run.context, run.queries, changes, committed.plan)
        self._journal.write(changes.generation, changed)
        try:
            new_queries = changeover.execute()
            order = [pipeline.name for pipeline in pipelines(self.flow, plan)]
            queries = sorted([*changes.keep, *new_queries], key=lambda query: order.index(query.pipeline))
            self._commit(plan, changes, tuple(queries))
        except BaseException as error:
            if self._committed is not committed:  # the new plan is in force and its rows may be written: no rollback
                raise
            self._roll_back(committed, changeover.started)
            self._journal.clear()
            if isinstance(error, PenstockError | KeyboardInterrupt | SystemExit):
                raise
            raise PenstockError(
                f"The plan could not be applied ({changed}): {type(error).__name__}: {first_line(error)}. The old plan "
                "is in force again."
            ) from error
        self._clean_up(before=committed)
        moved = changeover.moved_state()
        return Applied(
            plan=plan,
            generation=changes.generation,
            changed=changed,
            pause_s=0.0 if changeover.paused_at is None else time.monotonic() - changeover.paused_at,
            stopped=tuple(query.pipeline for query in changes.stop),
            moved_rows=None if moved is None else moved.rows,
            moved_bytes=None if moved is None else moved.bytes,
        )

    def _commit(self, plan: Plan, changes: QueryChanges, queries: tuple[Query, ...]) -> None:
        committed = Committed(
            generation=changes.generation,
            plan=plan,
            shape=shape_of(self.flow),
            queries=queries,
            channels=changes.channels,
            endpoints=endpoints_of(self.flow),
            aggregates=self._opened().queries.aggregates(),
        )
        before, self._committed = self._committed, committed  # set it first: a saved plan cannot be rolled back
        try:
            committed.save(self.run)
        except BaseException:
            if Committed.load(self.run) != committed:
                self._committed = before
            raise

    def _record_slots(self, slots: int) -> None:
        """Record the slots that are available to the plan in force."""
        committed = self._in_force()
        if slots != committed.plan.slots:
            self._committed = msgspec.structs.replace(committed, plan=committed.plan.replace(slots=slots))
            self._committed.save(self.run)

    def _clean_up(self, before: Committed) -> None:
        """Delete what the plans before the last change used. A failed deletion is repeated after the next change."""
        self._journal.clear()
        with contextlib.suppress(OSError, PenstockError):
            self._directory.delete_unused(self._committed, before)

    def _roll_back(self, committed: Committed, started: list[RunningQuery]) -> None:
        """Stop the queries of a failed change and restart those of the committed plan."""
        queries = self._opened().queries
        for running in started:
            queries.stop(running)
        for query in committed.queries:
            before = queries.running.get(query.checkpoint)
            if before is None or not before.is_active():
                if before is not None:
                    queries.running.pop(query.checkpoint).stop()
                with contextlib.suppress(Exception):  # `recover` starts it later, and reports why it fails
                    queries.start(query, queries.pipeline(query, committed.plan))
            hold_file(self.run, query.checkpoint).unlink(missing_ok=True)
        self._directory.delete_unused(committed)

    # ---- observing and recovering

    def observe(self) -> Window:
        with self._lock:
            run, committed = self._opened(), self._in_force()
            # Fail if a source or a channel is unreachable: its metrics would be stale, and no window is better.
            for source in run.context.sources.values():
                source.available()
            for folder in committed.channels.values():
                self._directory.channel(folder).check_available()
            window = run.meter.window(committed, run.queries.running)
            self._directory.delete_read_rows(self.queries, run.meter.counted_up_to)
            return window

    def set_rate(self, source: str, rows_per_s: float) -> None:
        sources = self._opened().context.sources
        if source not in sources:
            raise PenstockError(
                f"'{source}' is not a source of dataflow '{self.flow.name}'. Its sources are: {', '.join(sources)}."
            )
        if not 0 <= rows_per_s < float("inf"):
            raise PenstockError(f"The rate is {rows_per_s} rows/s; give a finite number, 0 or more.")
        sources[source].set_rate(rows_per_s)

    def recover(self) -> tuple[str, ...]:
        with self._lock:
            done, self._messages = self._messages, []
            if self._open_run is not None:
                done += self._restart_failed_queries(self._open_run.queries)
            if self._executors is not None and self._committed is not None:
                rejection = self._executors.admit_new()
                done += [] if rejection is None else [rejection]
                done += self._adapt_to_executors(self._executors)
            return tuple(done)

    def _restart_failed_queries(self, queries: QueryRunner) -> list[str]:
        done = []
        for query in self.queries:
            if query.checkpoint not in queries.running:  # a rollback could not restart it
                queries.start(query, queries.pipeline(query, self.plan))
                done.append(f"Pipeline '{query.pipeline}' was not running and was started.")
        for running, reason in queries.due_for_retry():
            self.restart(running.record)
            done.append(f"Pipeline '{running.record.pipeline}' failed and was restarted: {reason}")
        return done

    def _adapt_to_executors(self, executors: Negotiator) -> list[str]:
        """Adapt the slots of the plan to a permanent change of the number of executors."""
        plan = self.plan
        planned_slots = plan.slots - plan.group_slots
        slots = self._drift.lasting_slots(executors, planned_slots, time.monotonic())
        shortages, has_surplus = self._group_drift.check(executors, plan.groups, time.monotonic())
        messages = [f"{shortage} Check that {self._master_url()} has free workers." for shortage in shortages]
        if slots is None and not has_surplus:
            return messages
        counts = executors.counts()
        if slots == 0:
            return [*messages, f"{counts}: the run waits for an executor. Check that {self._master_url()} is running."]
        requested_slots = counts.requested * executors.slots_per_executor - plan.group_slots
        if slots is None or slots > requested_slots:
            try:
                executors.resize(plan.slots, plan.groups)
            except ExecutorsError as error:  # the next check sees what is available then
                return [*messages, f"{counts}: {error}"]
            return [*messages, f"{counts}: executors that registered too late were released."]
        self._record_slots(slots + plan.group_slots)
        return [*messages, f"{counts}: the run continues with {slots_text(slots)} instead of {planned_slots}."]

    def _master_url(self) -> str:
        return str(self._spark.sparkContext.master) if self._spark is not None else self._master

    def failure(self) -> str | None:
        failed = self._open_run.queries.final_failure() if self._open_run is not None else None
        return f"Pipeline '{failed[0]}' failed: {failed[1]}" if failed else None

    def idle(self) -> bool:
        """Return whether all sources have ended and all rows have been processed."""
        with self._lock:
            queries = self._opened().queries
            before = queries.idle_positions(self.queries)
            if before is None:
                return False
            time.sleep(0.2)  # a query may have been between two batches
            return queries.idle_positions(self.queries) == before
