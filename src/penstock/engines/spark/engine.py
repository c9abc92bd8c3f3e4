"""The Spark engine: one dataflow, one plan at a time, changed while it runs.

The run's directory holds everything: `plan.json` (what is committed), `checkpoints/`, `channels/`, `sources/`, `hold/`.
A change prepares new checkpoints beside the old ones, starts the new queries behind a closed gate and then replaces
`plan.json` in one step, which is the commit and what opens the gate. Whatever fails before that leaves the old plan.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow import Dataflow, Kind, PenstockError
from penstock.dataflow.load import modules_by_value
from penstock.engines.ports import Applied
from penstock.engines.spark.change.changeover import Changeover
from penstock.engines.spark.change.query_changes import Change, change
from penstock.engines.spark.change.resume_check import check_same_dataflow, ends_of, shape_of, take_up
from penstock.engines.spark.error_text import first_words
from penstock.engines.spark.executors import ExecutorsError, Negotiator, negotiator_of
from penstock.engines.spark.executors.drift import ExecutorDrift
from penstock.engines.spark.metering.meter import Meter
from penstock.engines.spark.queries.queries import Queries
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.gate import hold_file
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.run_directory.committed import Committed, Query, QueryInput, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.run_directory.journal import Journal
from penstock.engines.spark.run_directory.orphans import await_orphan, note_jvm
from penstock.engines.spark.session import session
from penstock.engines.spark.sinks import writers
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.sources.factory import create_source
from penstock.measure.window import Window
from penstock.plan import Plan, default_plan, diff, pipelines, validated

SAMPLE_EVERY = 16  # of 1 ms rows the clocks then cost less than can be measured


class SparkEngine:
    def __init__(
        self,
        flow: Dataflow,
        at: str | Path,
        *,
        master: str = "local[2]",
        confs: dict[str, str] | None = None,
        plan: Plan | None = None,
        spark: SparkSession | None = None,
        executors_patience_s: float = 60.0,
        batch_s: float = 2.0,
        most_rows_a_batch: int | None = None,
        measured: bool = True,
        sample_every: int = SAMPLE_EVERY,
        kafka: KafkaCluster | None = None,  # where new cuts keep their rows; None: in the run's directory
    ) -> None:
        """`sample_every`: of row functions, one row in so many is timed by itself."""
        flow.check()
        if sample_every < 1:
            raise PenstockError(f"one row in {sample_every} is to be timed; give 1 (every row) or more")
        if plan is not None:
            plan = validated(flow, plan)
        self.flow = flow
        self.run = Path(at).resolve()
        self._master = master
        self._confs = confs
        self._asked = plan
        self._spark = spark
        self._owns_spark = spark is None
        self._batch_s = batch_s
        self._most_rows = most_rows_a_batch
        self._sample_every = sample_every if measured else None
        self._sources: dict[str, StreamSource] = {}
        self._directory = RunDirectory(self.run, kafka)
        self._journal = Journal(self.run)
        self._queries: Queries | None = None
        self._committed: Committed | None = None
        self._changing = threading.RLock()
        self._meter: Meter | None = None
        self._executors: Negotiator | None = None
        self._drift = ExecutorDrift(executors_patience_s)
        self._found_out: list[str] = []  # when the run was resumed
        self._executors_patience_s = executors_patience_s
        self._patience_s = 2 * batch_s  # how long a batch is waited for where it may as well be interrupted

    # ---- the contract

    @property
    def plan(self) -> Plan:
        if self._committed is None:
            raise PenstockError("the run has not been started: there is no plan in force yet")
        return self._committed.plan

    @property
    def generation(self) -> int:
        return self._committed.generation if self._committed else 0

    @property
    def queries(self) -> tuple[Query, ...]:
        """What runs under the plan in force, upstream first."""
        return self._committed.queries if self._committed else ()

    def running(self, query: Query) -> Any:
        """Spark's own handle of a query."""
        return self._queries.running[query.checkpoint].query

    def restart(self, query: Query) -> None:
        """Stops a query and starts it again under the same plan."""
        with self._changing:
            self._queries.halt(self._queries.running[query.checkpoint])
            self._queries.start(query, self._queries.pipeline(query, self.plan))

    @property
    def executors(self) -> Negotiator:
        """Who gets them, and what is there."""
        if self._executors is None:
            raise PenstockError("the run has not been started: it has no executors yet")
        return self._executors

    def run_id(self, query: Query) -> str:
        """Spark's id of this start of a query; another one means that it was started again."""
        return str(self.running(query).runId)

    def start(self) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        found = Committed.load(self.run)
        if found is not None:
            check_same_dataflow(found, self.flow, self.run)
        for module in modules_by_value(self.flow):  # workers cannot import these
            cloudpickle.register_pickle_by_value(module)
        await_orphan(self.run)
        if self._spark is None:
            self._spark = session(self._master, f"penstock {self.flow.name}", self._confs)
        note_jvm(self.run, self._spark)
        self._executors = negotiator_of(self._spark, patience_s=self._executors_patience_s)
        if found is None:
            self._begin_anew()
        else:
            self._resume(found)
        if self._asked is not None and found is not None:
            asked = self._asked.replace(slots=self._executors.begin(self._asked.slots))
            if not diff(self.plan, asked).empty:
                self._settled_on(asked.slots)
                self.apply(asked)

    def apply(self, plan: Plan) -> Applied:
        with self._changing:
            began = time.monotonic()
            committed = self._committed
            if committed is None:
                raise PenstockError("the run has not been started: start it before changing its plan")
            plan = validated(self.flow, plan)
            self._executors.check(plan.slots)
            wanted = plan.slots
            if wanted > committed.plan.slots:  # first of all: the old plan goes on while they come
                plan = plan.replace(slots=self._executors.settle(wanted))
            try:
                applied = self._replan(committed, plan)
            except BaseException:
                if wanted > committed.plan.slots:
                    self._executors.settle(committed.plan.slots)
                raise
            if wanted < committed.plan.slots:  # last of all: what is in force needs them no more
                self._settled_on(self._executors.settle(wanted))
            words, got = applied.changed, self.plan.slots
            if got != wanted:
                words = f"{words}; {wanted} slots were asked for and {got} are there"
            took_s = time.monotonic() - began
            return msgspec.structs.replace(applied, plan=self.plan, changed=words, took_s=took_s)

    def _replan(self, committed: Committed, plan: Plan) -> Applied:
        """All of a change but executors."""
        words = str(diff(committed.plan, plan))
        todo = change(self.flow, committed, plan)
        if not todo.begin and not todo.stop:
            if plan != committed.plan:
                self._commit(plan, todo, committed.queries)
                self._tidy_up(before=committed)
            return Applied(plan=plan, generation=self.generation, changed=words, pause_s=0.0, stopped=())
        changeover = self._changeover(todo, committed.plan)
        self._journal.write(todo.generation, words)
        try:
            queries = changeover.carry_out()
            order = [pipeline.name for pipeline in pipelines(self.flow, plan)]
            everyone = sorted([*todo.keep, *queries], key=lambda query: order.index(query.pipeline))
            self._commit(plan, todo, tuple(everyone))
        except BaseException as error:
            if self._committed is not committed:  # it is in force, and its rows may be on their way: no way back
                raise
            self._roll_back(committed, changeover.started)
            self._journal.clear()
            if isinstance(error, PenstockError | KeyboardInterrupt | SystemExit):
                raise
            raise PenstockError(
                f"the plan could not be applied ({words}): {type(error).__name__}: {first_words(error)}; the old plan "
                "is in force again"
            ) from error
        self._tidy_up(before=committed)
        return Applied(
            plan=plan,
            generation=todo.generation,
            changed=words,
            pause_s=0.0 if changeover.paused_at is None else time.monotonic() - changeover.paused_at,
            stopped=tuple(query.pipeline for query in todo.stop),
        )

    def _settled_on(self, slots: int) -> None:
        """Notes the slots that the plan in force really has."""
        committed = self._committed
        if slots != committed.plan.slots:
            self._committed = msgspec.structs.replace(committed, plan=committed.plan.replace(slots=slots))
            self._committed.save(self.run)

    def observe(self) -> Window:
        with self._changing:
            if self._meter is None or self._committed is None:
                raise PenstockError("the run has not been started: there is nothing to observe")
            for source in self._sources.values():
                source.available()  # what is away has stale metrics: better no window than a wrong one
            for folder in self._committed.channels.values():
                self._directory.channel(folder).check_available()
            window = self._meter.window(self._committed, self._queries.running)
            self._directory.delete_read_rows(self.queries, self._meter.counted_up_to)
            return window

    def set_rate(self, source: str, rows_per_s: float) -> None:
        if source not in self._sources:
            raise PenstockError(f"'{source}' is no source of '{self.flow.name}'; it has {', '.join(self._sources)}")
        if not 0 <= rows_per_s < float("inf"):
            raise PenstockError(f"a rate of {rows_per_s} rows/s: give a number, 0 or more")
        self._sources[source].set_rate(rows_per_s)

    def recover(self) -> tuple[str, ...]:
        with self._changing:
            done, self._found_out = self._found_out, []
            for query in self.queries if self._queries is not None else ():
                if query.checkpoint not in self._queries.running:  # a change that failed could not start it again
                    self._queries.start(query, self._queries.pipeline(query, self.plan))
                    done.append(f"pipeline '{query.pipeline}' did not run and was started")
            for running, reason in self._queries.due() if self._queries is not None else ():
                self.restart(running.record)
                done.append(f"pipeline '{running.record.pipeline}' failed and was started again: {reason}")
            if self._executors is not None and self._committed is not None:
                planned = self.plan.slots
                there = self._drift.slots(self._executors, planned, time.monotonic())
                standing = None if there is None else self._executors.standing()
                if there == 0:
                    where = self._spark.sparkContext.master
                    done.append(f"{standing}: it waits for one; see whether {where} is up")
                elif there is not None and there > standing.requested * self._executors.slots_each:
                    try:
                        self._executors.settle(planned)
                        done.append(f"{standing}: those that came when they were not wanted any more were let go")
                    except ExecutorsError as error:  # the next look sees what is there then
                        done.append(f"{standing}: {error}")
                elif there is not None:
                    self._settled_on(there)
                    done.append(f"{standing}: it goes on with {there} slots instead of {planned}")
            return tuple(done)

    def failure(self) -> str | None:
        failed = self._queries.failure() if self._queries is not None else None
        return f"pipeline '{failed[0]}' failed: {failed[1]}" if failed else None

    def idle(self) -> bool:
        """All sources have ended, everything appended has been read, and no query has anything left to do."""
        with self._changing:
            before = self._queries.at_rest(self.queries)
            if before is None:
                return False
            time.sleep(0.2)
            return self._queries.at_rest(self.queries) == before

    def position(self, query: Query, source: QueryInput) -> Offset:
        """Return the offset up to which a query has read one of its inputs: the end of its last committed batch."""
        return self._directory.position(query, source)

    def stop(self) -> None:
        with self._changing:
            if self._queries is not None:
                self._queries.stop(self._patience_s)
            if self._owns_spark and self._spark is not None:
                self._spark.stop()
                self._spark = None

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """What a memory sink holds."""
        return writers.memory_rows(self.run, sink)

    # ---- starting

    def _begin_anew(self) -> None:
        slots = self._executors.begin(self._asked.slots if self._asked is not None else None)
        plan = default_plan(self.flow, slots=slots) if self._asked is None else self._asked.replace(slots=slots)
        plan = validated(self.flow, plan)
        self._open(None)
        todo = change(self.flow, None, plan)
        self._commit(plan, todo, tuple(self._changeover(todo, None).carry_out()))

    def _resume(self, found: Committed) -> None:
        plan = found.plan.replace(slots=self._executors.begin(found.plan.slots))
        plan = validated(self.flow, plan)
        self._open(found)
        self._committed = msgspec.structs.replace(found, plan=plan, endpoints=ends_of(self.flow))
        for query in found.queries:
            checkpoint = self._directory.checkpoint(query)
            planned = checkpoint.offsets(checkpoint.planned())
            for source in query.inputs:
                if isinstance(source, SourceInput):
                    self._sources[source.operator].resume(planned.get(source.name, source.start))
        self._found_out += take_up(found, self.flow, self._sources)
        self._queries.start_all(found.queries, plan)
        self._committed.save(self.run)
        self._found_out += self._journal.report_interrupted(found.generation)

    def _open(self, found: Committed | None) -> None:
        self._directory.delete_unused(found)
        for operator in self.flow.operators:
            if operator.kind is Kind.SOURCE:
                self._sources[operator.name] = create_source(operator, self.run / "sources")
            elif operator.kind is Kind.SINK:
                writers.check_reachable(operator.name, operator.sink)
        self._meter = Meter(self.flow, self._spark, self._sources, self._directory.channel, self.run)
        self._queries = Queries(
            self._spark,
            self.flow,
            self._directory,
            self._sources,
            self._meter,
            batch_s=self._batch_s,
            most_rows=self._most_rows,
            sample_every=self._sample_every,
        )

    # ---- changing

    def _changeover(self, todo: Change, before: Plan | None) -> Changeover:
        return Changeover(
            self._spark,
            self.flow,
            self._directory,
            self._sources,
            self._queries,
            before=before,
            todo=todo,
            patience_s=self._patience_s,
        )

    def _commit(self, plan: Plan, todo: Change, queries: tuple[Query, ...]) -> None:
        committed = Committed(
            generation=todo.generation,
            plan=plan,
            shape=shape_of(self.flow),
            queries=queries,
            channels=todo.channels,
            endpoints=ends_of(self.flow),
        )
        before, self._committed = self._committed, committed  # first: once it is saved there is no way back
        try:
            committed.save(self.run)
        except BaseException:
            if Committed.load(self.run) != committed:
                self._committed = before
            raise

    def _tidy_up(self, before: Committed) -> None:
        """What cannot be deleted now is when the next plan is in force, or the run is resumed."""
        self._journal.clear()
        with contextlib.suppress(OSError, PenstockError):
            self._directory.delete_unused(self._committed, before)

    def _roll_back(self, committed: Committed, started: list[RunningQuery]) -> None:
        for running in started:
            self._queries.halt(running)
        for query in committed.queries:
            running = self._queries.running.get(query.checkpoint)
            if running is None or not running.active():
                if running is not None:
                    self._queries.running.pop(query.checkpoint).stop()
                with contextlib.suppress(Exception):  # whoever mends the run starts what is missing, and tells why not
                    self._queries.start(query, self._queries.pipeline(query, committed.plan))
            hold_file(self.run, query.checkpoint).unlink(missing_ok=True)
        self._directory.delete_unused(committed)
