"""The queries of a run: compiled, started, waited for, and asked how they are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.dataflow import Dataflow, PenstockError
from penstock.dataflow.sources import SparkSource
from penstock.engines.spark.channels.logged_channel import event_observation
from penstock.engines.spark.compile.compiler import Compiled, Compiler
from penstock.engines.spark.metering.batches import turns_over_nothing
from penstock.engines.spark.metering.meter import Meter
from penstock.engines.spark.queries.retries import Fall
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.run_directory.committed import ChannelInput, Origin, Query, QueryInput, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.sinks import writers
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.storage.schemas import to_channel_schema, to_loop_schema
from penstock.plan import Pipeline, Plan, pipelines

_STANDSTILL_S = 120.0
_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class Queries:
    def __init__(
        self,
        spark: SparkSession,
        flow: Dataflow,
        directory: RunDirectory,
        sources: dict[str, StreamSource],
        meter: Meter,
        *,
        batch_s: float,
        most_rows: int | None,
        sample_every: int | None,
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._directory = directory
        self._sources = sources
        self._meter = meter
        self._batch_s = batch_s
        self._most_rows = most_rows
        self._sample_every = sample_every
        self.running: dict[str, RunningQuery] = {}  # by checkpoint
        self._falls: dict[str, tuple[Any, Fall]] = {}  # by checkpoint: the start that ended by itself last

    def start(
        self, query: Query, pipeline: Pipeline, compiled: Compiled | None = None, once: bool = False
    ) -> RunningQuery:
        running = RunningQuery(query, compiled or self.compile(query, pipeline))
        if not once:
            running.release(self._directory.path)
        spark = self._spark
        # Without state only a join with a table shuffles, and that within an operator: the largest count is its own.
        partitions = pipeline.state_replicas or max((count for _, count in pipeline.replicas), default=1)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        spark.conf.set(_EVOLUTION, str(not self._is_opaque(pipeline)).lower())
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.pipeline)
        name, run = f"{self._flow.name}.{query.pipeline}", self._directory.path
        try:
            running.start(self._writer(query, running), name, run, once)
        finally:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
            spark.conf.set(_EVOLUTION, "true")
        self.running[query.checkpoint] = running
        self._meter.started(running)
        return running

    def start_all(self, queries: Iterable[Query], plan: Plan) -> None:
        """Those of a plan; what cannot be compiled is refused before the first of them runs."""
        drafts = [(query, self.pipeline(query, plan)) for query in queries]
        for query, pipeline, compiled in [(*draft, self.compile(*draft)) for draft in drafts]:
            self.start(query, pipeline, compiled)

    def compile(self, query: Query, pipeline: Pipeline) -> Compiled:
        def read(origin: Origin, replicas: int) -> tuple[DataFrame, str | None]:
            source = query.input(origin)
            options = ReaderOptions(
                name=source.name,
                replicas=replicas,
                query=query.checkpoint,
                opens_at=query.opens_at,
                run=self._directory.path,
                batch_s=self._batch_s,
                max_rows=self._most_rows,
            )
            if isinstance(source, SourceInput):
                return self._sources[source.operator].read(self._spark, options), None
            channel = self._directory.channel(source.folder)
            df = channel.read(self._spark, options)
            return df, event_observation(source.name) if channel.event_time else None

        if self._is_opaque(pipeline):
            self._spark.conf.set(_EVOLUTION, "false")
        try:
            compiled = Compiler(self._spark, self._flow, pipeline, read, self._sample_every).compile()
        finally:
            self._spark.conf.set(_EVOLUTION, "true")
        compiled.df = self._as_its_readers_know_it(compiled.df, query)
        return compiled

    def _as_its_readers_know_it(self, df: DataFrame, query: Query) -> DataFrame:
        name, folder = query.pipeline, query.appends_to
        declared = self._flow[name].feedback_schema
        if declared is not None:
            df = to_loop_schema(df, name, declared)
        if folder is not None and self._directory.has_channel(folder):
            df = to_channel_schema(df, name, StructType.fromJson(json.loads(self._directory.channel(folder).schema)))
        return df

    def pipeline(self, query: Query, plan: Plan) -> Pipeline:
        return next(one for one in pipelines(self._flow, plan) if one.name == query.pipeline)

    def halt(self, running: RunningQuery) -> None:
        """Stops a query for good; what it has done is counted."""
        running.stop()
        self._meter.settle(running)
        self.running.pop(running.record.checkpoint, None)

    def finish_batch(self, query: Query, pipeline: Pipeline) -> None:
        """Runs the batch that a stop interrupted, and no other."""
        running = self.start(query, pipeline, once=True)
        running.await_end()
        self.halt(running)

    def await_position(self, query: Query, source: QueryInput, end: Offset) -> None:
        running = self.running[query.checkpoint]
        at, since_s = None, time.monotonic()
        while (now := self._directory.position(query, source)) != end:
            if now != at:
                at, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > _STANDSTILL_S:
                raise PenstockError(
                    f"pipeline '{query.pipeline}' has not ended a batch for {_STANDSTILL_S:g} s, and rows before it "
                    "have to be through before that cut can go"
                )
            reason = running.failure()
            if reason is not None:
                raise PenstockError(f"pipeline '{query.pipeline}' failed while it was drained: {reason}")
            time.sleep(0.02)

    def fallen(self) -> list[tuple[RunningQuery, str]]:
        """The queries that ended by themselves, and why."""
        found = [(running, running.failure()) for running in list(self.running.values())]
        return [(running, reason) for running, reason in found if reason is not None]

    def failure(self) -> tuple[str, str] | None:
        """The pipeline that ended by itself and is not started again, and why."""
        for running, reason in self.fallen():
            fall = self._fall(running)
            if fall.hopeless:
                times = f" ({fall.times} times at the same place)" if fall.times > 1 else ""
                return running.record.pipeline, f"{reason}{times}"
        return None

    def due(self) -> list[tuple[RunningQuery, str]]:
        """The queries that ended by themselves and are to be started again now, and why they ended."""
        now = time.monotonic()
        return [(running, reason) for running, reason in self.fallen() if self._fall(running).due(now)]

    def _fall(self, running: RunningQuery) -> Fall:
        """Noted once for each start of a query."""
        checkpoint = running.record.checkpoint
        start, fall = self._falls.get(checkpoint, (None, None))
        if start != running.query.runId:
            batch, now = self._directory.checkpoint(running.record).committed(), time.monotonic()
            fall = fall.again(batch, now) if fall is not None else Fall(batch=batch, times=1, at_s=now)
            self._falls[checkpoint] = running.query.runId, fall
        return fall

    def at_rest(self, queries: Iterable[Query]) -> tuple[Any, ...] | None:
        """All positions, if each is at its end and the queries wait for data or turn over nothing; else None."""
        found = []
        for query in queries:
            running = self.running.get(query.checkpoint)
            if running is None:
                return None
            for source in query.inputs:
                at = self._directory.position(query, source)
                if isinstance(source, ChannelInput):
                    if at != self._directory.channel(source.folder).end():
                        return None
                elif not self._sources[source.operator].has_ended(at):
                    return None
                found.append((source.name, tuple(at.items())))
            if not running.settled(self._directory.checkpoint(query)) and not turns_over_nothing(running):
                return None
        return tuple(found)

    def stop(self, patience_s: float) -> None:
        for running in list(self.running.values()):
            if running.active():
                running.drain(self._directory.path, patience_s)
            self.halt(running)

    def _is_opaque(self, pipeline: Pipeline) -> bool:
        return any(isinstance(self._flow[name].source, SparkSource) for name in pipeline.operators)

    def _writer(self, query: Query, running: RunningQuery) -> writers.Write | None:
        if query.appends_to is None:
            sink = self._flow[query.pipeline]
            return writers.create_writer(sink.name, sink.sink, self._directory.path, lambda: running.stopping)
        channel = self._directory.channel(query.appends_to)

        def append(df: DataFrame, key: str) -> int:
            return channel.append(df, key, running.latest_event_s)

        return append
