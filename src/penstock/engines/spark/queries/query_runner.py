"""The queries of a run: compiled, started, stopped, checked for failures and for idleness."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.dataflow import OutputMode, PenstockError
from penstock.dataflow.sources import SparkSource
from penstock.engines.spark.channels.logged_channel import event_observation
from penstock.engines.spark.compile.compiler import Compiled, Compiler
from penstock.engines.spark.log_files import append_error
from penstock.engines.spark.queries.retries import RepeatedFailure
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.run_directory.committed import ChannelInput, Origin, Query, QueryInput, SourceInput
from penstock.engines.spark.sinks import writers
from penstock.engines.spark.storage.schemas import refuse_intervals_of_months, to_channel_schema, to_loop_schema
from penstock.plan import Pipeline, Plan, pipelines

_STALLED_S = 120.0
_FIRST_BATCH_PATIENCE_S = 60.0
_ASK_S = 0.5
_SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

QueryListener = Callable[[RunningQuery], None]
Positions = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]  # (source name, offset) of every input


class QueryRunner:
    """Starts and stops the queries of one run.

    `on_start` and `on_stop` are called after each start and each stop; they let the measurement follow the queries.
    """

    def __init__(self, context: RunContext, *, on_start: QueryListener, on_stop: QueryListener) -> None:
        self._context = context
        self._spark = context.spark
        self._flow = context.flow
        self._directory = context.directory
        self._on_start = on_start
        self._on_stop = on_stop
        self.running: dict[str, RunningQuery] = {}  # by checkpoint
        self._failures: dict[str, tuple[str, RepeatedFailure]] = {}  # checkpoint -> run id that failed last, record

    # ---- compiling

    def compile(self, query: Query, pipeline: Pipeline) -> Compiled:
        """Compile a pipeline; raise PenstockError if Spark would refuse to run it, or if the start was cancelled."""
        self._context.check_not_cancelled()

        def read(
            origin: Origin, replicas: int, with_watermark: bool, shares: tuple[float, ...]
        ) -> tuple[DataFrame, str | None]:
            source = query.input(origin)
            options = self._reader_options(query, source, replicas, shares)
            if isinstance(source, SourceInput):
                return self._context.sources[source.operator].read(self._spark, options), None
            channel = self._directory.channel(source.folder)
            df = channel.read(self._spark, options, with_watermark=with_watermark)
            return df, event_observation(source.name) if with_watermark and channel.has_event_time else None

        if self._reads_user_dataframe(pipeline):
            self._spark.conf.set(_SOURCE_EVOLUTION, "false")
        try:
            sample_every = self._context.settings.sample_every
            compiled = Compiler(
                self._spark,
                self._flow,
                pipeline,
                read,
                sample_every,
                keeps_all_columns=query.keeps_all_columns,
                run=self._directory.path,
                profile=self._context.executors.profile,
            ).compile()
        finally:
            self._spark.conf.set(_SOURCE_EVOLUTION, "true")
        compiled.df = self._with_channel_schema(compiled.df, query)
        return compiled

    def _reader_options(
        self, query: Query, source: QueryInput, replicas: int, shares: tuple[float, ...]
    ) -> ReaderOptions:
        return ReaderOptions(
            name=source.name,
            replicas=replicas,
            query=query.checkpoint,
            opens_at=query.opens_at,
            run=self._directory.path,
            batch_s=self._context.settings.batch_s,
            max_rows=self._context.settings.max_batch_rows,
            shares=shares,
        )

    def _with_channel_schema(self, df: DataFrame, query: Query) -> DataFrame:
        """Convert the output to the schema that the readers of its channel know."""
        name, folder = query.pipeline, query.appends_to
        declared = self._flow[name].feedback_schema
        if declared is not None:
            df = to_loop_schema(df, name, declared)
        if folder is not None:
            refuse_intervals_of_months(f"the cut after '{name}'", df.schema)
        if folder is not None and self._directory.has_channel(folder):
            df = to_channel_schema(df, name, StructType.fromJson(json.loads(self._directory.channel(folder).schema)))
        return df

    def pipeline(self, query: Query, plan: Plan) -> Pipeline:
        """Return the pipeline that a query of this plan runs."""
        return next(pipeline for pipeline in pipelines(self._flow, plan) if pipeline.name == query.pipeline)

    def aggregates(self) -> dict[str, tuple[str, ...]]:
        """Return the aggregate functions of the running queries, by operator with state."""
        return {name: found for running in self.running.values() for name, found in running.compiled.aggregates.items()}

    # ---- starting and stopping

    def start(
        self, query: Query, pipeline: Pipeline, compiled: Compiled | None = None, once: bool = False
    ) -> RunningQuery:
        """Start a query, compiling it first if necessary. It runs a single batch if `once` is set."""
        self._context.check_not_cancelled()
        running = RunningQuery(query, compiled or self.compile(query, pipeline))
        if not once:
            running.release(self._directory.path)
        spark = self._spark
        # Without state, only a join with a table shuffles. It is within one operator, which has the largest count.
        partitions = pipeline.state_replicas or max((count for _, count in pipeline.replicas), default=1)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        spark.conf.set(_SOURCE_EVOLUTION, str(not self._reads_user_dataframe(pipeline)).lower())
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.pipeline)
        name, run = f"{self._flow.name}.{query.pipeline}", self._directory.path
        try:
            running.start(self._writer(query, running), name, run, self._context.executors, once)
        finally:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # None removes it
            spark.conf.set(_SOURCE_EVOLUTION, "true")
        self.running[query.checkpoint] = running
        self._on_start(running)
        return running

    def start_all(self, queries: Iterable[Query], plan: Plan, on_compiled: Callable[[list[Compiled]], None]) -> None:
        """Start the queries of a plan. All are compiled first, so that an invalid one is refused before any runs."""
        drafts = [(query, self.pipeline(query, plan)) for query in queries]
        compiled_drafts = [(*draft, self.compile(*draft)) for draft in drafts]
        on_compiled([compiled for *_, compiled in compiled_drafts])
        for query, pipeline, compiled in compiled_drafts:
            self.start(query, pipeline, compiled)

    def stop(self, running: RunningQuery) -> None:
        """Stop a query at once. Its committed batches are still measured."""
        running.stop()
        self._on_stop(running)
        self.running.pop(running.record.checkpoint, None)

    def stop_all(self, patience_s: float) -> None:
        """Stop all queries, each at the end of its batch if that comes within `patience_s`."""
        for running in list(self.running.values()):
            if running.is_active():
                running.drain(self._directory.path, patience_s)
            self.stop(running)

    def finish_batch(self, query: Query, pipeline: Pipeline) -> RunningQuery:
        """Run the batch that a stop interrupted, and no other one."""
        running = self.start(query, pipeline, once=True)
        running.await_end()
        self.stop(running)
        return running

    def await_start(self, running: RunningQuery) -> None:
        """Wait until Spark has loaded the checkpoint and the sources; raise PenstockError if the query fails."""
        running.await_start(self._context.check_not_cancelled)

    def await_position(self, query: Query, source: QueryInput, end: Offset) -> None:
        """Wait until a query has committed all rows of an input up to `end`; raise PenstockError if it cannot."""
        running = self.running[query.checkpoint]
        at, since_s = None, time.monotonic()
        while (now := self._directory.position(query, source)) != end:
            if now != at:
                at, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > _STALLED_S:
                raise PenstockError(
                    f"Pipeline '{query.pipeline}' has not committed a batch for {_STALLED_S:g} s. Its cut can only be "
                    "removed after all rows in it have been processed."
                )
            reason = running.failure()
            if reason is not None:
                raise PenstockError(f"Pipeline '{query.pipeline}' failed while it was drained: {reason}")
            time.sleep(0.02)

    def await_first_batches(self, queries: Iterable[Query], plan: Plan) -> None:
        """Wait until each query has committed its first batch, which starts Python workers and compiles code.

        The first batch runs even without rows (see `reading.offsets`). The wait ends early if a query fails, because
        `due_for_retry` restarts it later.
        """
        deadline = time.monotonic() + _FIRST_BATCH_PATIENCE_S
        for query in queries:
            if self._reads_user_dataframe(self.pipeline(query, plan)):  # it has no batch before its first row
                continue
            running, checkpoint = self.running[query.checkpoint], self._directory.checkpoint(query)
            ask_s = 0.0
            while not running.has_committed(checkpoint) and (now := time.monotonic()) < deadline:
                if now >= ask_s:  # rarely, because a call into the JVM takes time from the start
                    if not running.is_active():
                        break
                    ask_s = now + _ASK_S
                self._context.check_not_cancelled()
                time.sleep(0.02)

    # ---- failures

    def final_failure(self) -> tuple[str, str] | None:
        """Return (pipeline, reason) of a failed query that is not restarted any more, or None."""
        for running, reason in self._failed():
            failure = self._repeated_failure(running, reason)
            if failure.is_final:
                times = f" ({failure.times} times at the same batch)" if failure.times > 1 else ""
                return running.record.pipeline, f"{reason}{times}"
        return None

    def due_for_retry(self) -> list[tuple[RunningQuery, str]]:
        """Return the failed queries that are to be restarted now, with the reasons of their failures."""
        now = time.monotonic()
        return [
            (running, reason)
            for running, reason in self._failed()
            if self._repeated_failure(running, reason).is_retry_due(now)
        ]

    def _failed(self) -> list[tuple[RunningQuery, str]]:
        reasons = [(running, running.failure()) for running in list(self.running.values())]
        return [(running, reason) for running, reason in reasons if reason is not None]

    def _repeated_failure(self, running: RunningQuery, reason: str) -> RepeatedFailure:
        """Return the failure record of a failed query; each start of the query is counted once."""
        checkpoint = running.record.checkpoint
        run_id, failure = self._failures.get(checkpoint, (None, None))
        if failure is None or run_id != running.run_id:
            batch, now = self._directory.checkpoint(running.record).committed(), time.monotonic()
            if failure is None:
                is_permanent = running.has_other_state()
                failure = RepeatedFailure(
                    committed_batch=batch, times=1, at_s=now, reason=reason, is_permanent=is_permanent
                )
            else:
                failure = failure.next(batch, now, reason)
            append_error(self._directory.path, f"Pipeline '{running.record.pipeline}' failed:", running.stack_trace())
            self._failures[checkpoint] = running.run_id, failure
        return failure

    # ---- idleness

    def idle_positions(self, queries: Iterable[Query]) -> Positions | None:
        """Return the positions of all inputs if all rows have been processed and nothing is left to do, else None."""
        positions = []
        for query in queries:
            running = self.running.get(query.checkpoint)
            if running is None:
                return None
            for source in query.inputs:
                at = self._directory.position(query, source)
                if isinstance(source, ChannelInput):
                    if at != self._directory.channel(source.folder).end():
                        return None
                elif not self._context.sources[source.operator].has_ended(at):
                    return None
                positions.append((source.name, tuple(at.items())))
            is_waiting = running.is_waiting_for_data(self._directory.checkpoint(query))
            if not is_waiting and not running.runs_empty_batches():
                return None
        return tuple(positions)

    def _reads_user_dataframe(self, pipeline: Pipeline) -> bool:
        """Spark's source evolution requires named sources, which a DataFrame of the user does not have."""
        return any(isinstance(self._flow[name].source, SparkSource) for name in pipeline.operators)

    def _writer(self, query: Query, running: RunningQuery) -> writers.Write | None:
        if query.appends_to is None:
            sink = self._flow[query.pipeline]
            assert sink.sink is not None
            return writers.create_writer(
                sink.name,
                sink.sink,
                self._directory.path,
                lambda: running.is_stopping,
                replaces=running.compiled.mode == OutputMode.COMPLETE,
            )
        channel = self._directory.channel(query.appends_to)

        def append(df: DataFrame, key: str) -> int:
            return channel.append(df, key, running.output_watermark_ms)

        return append
