"""One change of plan: its queries compiled, the old ones stopped, their checkpoints handed on, the new ones started."""

from __future__ import annotations

import shutil
import time

import msgspec
from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, PenstockError
from penstock.dataflow.edge import Edge
from penstock.engines.spark.change.query_changes import Begin, Change, source_operators
from penstock.engines.spark.compile.compiler import Compiled
from penstock.engines.spark.jvm import repartition_state
from penstock.engines.spark.queries.queries import Queries
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.offsets import Offset, save_start_offsets
from penstock.engines.spark.run_directory.committed import ChannelInput, Origin, Query, QueryInput, SourceInput
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.storage.schemas import parse_schema
from penstock.plan import Plan

Positions = dict[str, dict[Origin, Offset]]  # checkpoint -> input -> the offset up to which it has been read


class Changeover:
    def __init__(
        self,
        spark: SparkSession,
        flow: Dataflow,
        directory: RunDirectory,
        sources: dict[str, StreamSource],
        queries: Queries,
        *,
        before: Plan | None,
        todo: Change,
        patience_s: float,
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._directory = directory
        self._sources = sources
        self._queries = queries
        self._before = before
        self._todo = todo
        self._patience_s = patience_s
        self.started: list[RunningQuery] = []  # what a failure has to stop again
        self.paused_at: float | None = None

    def carry_out(self) -> list[Query]:
        """The new queries, which run but take no rows before the plan is committed."""
        drafts = self._compile_all()  # what Spark would refuse, it refuses before anything is stopped
        positions = self._stop()
        queries = []
        for begin, (draft, compiled) in zip(self._todo.begin, drafts, strict=True):
            query = self._prepare(begin, draft, positions)
            self.started.append(self._queries.start(query, begin.pipeline, compiled))
            queries.append(query)
        for place, begin in enumerate(self._todo.begin):
            self._await_start(place, begin)
        return queries

    def _await_start(self, place: int, begin: Begin) -> None:
        running = self.started[place]
        try:
            running.await_start()
        except PenstockError:  # Spark gives a Python worker ten seconds to start, which a busy machine may not keep
            self._queries.halt(running)
            self.started[place] = self._queries.start(running.record, begin.pipeline)
            self.started[place].await_start()

    def _compile_all(self) -> list[tuple[Query, Compiled]]:
        """Compiles every new pipeline, upstream first, creating the channels that are new on the way.

        A loop's channel is created before all others, from the schema that was declared for it.
        """
        for name, folder in self._todo.channels.items():
            declared = self._flow[name].feedback_schema
            if declared is not None and not self._directory.has_channel(folder):
                schema = parse_schema(f"the loop that '{name}' closes", declared)
                self._directory.create_channel(folder, schema.json(), None)
        drafts = []
        for begin in self._todo.begin:
            draft = self._draft(begin)
            compiled = self._queries.compile(draft, begin.pipeline)
            folder = self._todo.channels.get(begin.pipeline.output)
            if folder is not None and not self._directory.has_channel(folder):
                event_time = compiled.event_time.watermark if compiled.event_time else None
                keys = self._keys_behind(begin.pipeline.output, compiled.df.columns)
                self._directory.create_channel(folder, compiled.df.schema.json(), event_time, keys)
            drafts.append((draft, compiled))
        return drafts

    def _keys_behind(self, cut: str, columns: list[str]) -> tuple[str, ...]:
        """The keys by which the rows of a cut are read, if its readers agree on them."""
        found = {reader.keys for reader in self._flow.consumers(cut)}
        keys = found.pop() if len(found) == 1 else ()
        return keys if set(keys) <= set(columns) else ()

    def _draft(self, begin: Begin) -> Query:
        """The query before it is known where it starts to read."""
        heir = begin.heir_of
        if begin.in_place and heir is not None:
            return self._query(begin, heir.checkpoint, heir.inputs)
        inputs: list[QueryInput] = []
        for origin in (*source_operators(self._flow, begin.pipeline.operators), *begin.pipeline.inputs):
            before = heir.find_input(origin) if heir is not None else None
            fresh = _fresh_input(origin, begin.channels, self._todo.generation)
            if before is not None and _folder(before) == _folder(fresh):
                inputs.append(before)  # its checkpoint knows how far it is
            else:
                inputs.append(fresh)
        return self._query(begin, f"{begin.pipeline.name}_g{self._todo.generation}", tuple(inputs))

    def _query(self, begin: Begin, checkpoint: str, inputs: tuple[QueryInput, ...]) -> Query:
        return Query(
            operators=begin.pipeline.operators,
            replicas=dict(begin.pipeline.replicas),
            checkpoint=checkpoint,
            opens_at=self._todo.generation,
            inputs=inputs,
            appends_to=self._todo.channels.get(begin.pipeline.output),
        )

    def _stop(self) -> Positions:
        """Stop the queries that the change touches, upstream first; return the positions that they reached."""
        positions: Positions = {}
        for query in self._todo.stop:
            running = self._queries.running[query.checkpoint]
            if self._todo.drains(query):
                for source in self._todo.vanishing(query):
                    end = self._directory.channel(source.folder).end()
                    self._queries.await_position(query, source, end)
                running.drain(self._directory.path)
            else:
                running.drain(self._directory.path, self._patience_s)
            self.paused_at = self.paused_at or time.monotonic()
            self._queries.halt(running)
            if self._todo.drains(query) and self._directory.checkpoint(query).interrupted():
                self._queries.finish_batch(query, self._queries.pipeline(query, self._before))
            positions[query.checkpoint] = {
                source.origin: self._directory.position(query, source) for source in query.inputs
            }
        return positions

    def _prepare(self, begin: Begin, draft: Query, positions: Positions) -> Query:
        """The new query with its starting points, and its checkpoint laid ready."""
        if begin.in_place:
            return draft
        inputs = []
        for source in draft.inputs:
            if begin.heir_of is not None and source in begin.heir_of.inputs:
                inputs.append(source)
            else:
                inputs.append(msgspec.structs.replace(source, start=self._start(source, positions)))
        save_start_offsets(self._directory.path, draft.checkpoint, {source.name: source.start for source in inputs})
        target = self._directory.checkpoint_folder(draft)
        shutil.rmtree(target, ignore_errors=True)
        if begin.heir_of is None:
            target.mkdir(parents=True)
        else:
            checkpoint = self._directory.checkpoint(begin.heir_of).copy_to(target)
            if begin.repartition_to is not None and checkpoint.committed() is not None and checkpoint.has_state():
                repartition_state(self._spark, target, begin.repartition_to)
        return self._query(begin, draft.checkpoint, tuple(inputs))

    def _start(self, source: QueryInput, positions: Positions) -> Offset:
        """Return where a new reader of this input begins: where the stopped reader ended, else at the beginning."""
        for query in self._todo.stop:
            before = query.find_input(source.origin)
            if before is not None and _folder(before) == _folder(source):
                return positions[query.checkpoint][source.origin]
        if isinstance(source, ChannelInput):
            return self._directory.channel(source.folder).first()
        return self._sources[source.operator].first()


def _fresh_input(origin: Origin, channels: dict[str, str], generation: int) -> QueryInput:
    """Return an input under a new name, because Spark resumes a known name from its old offset."""
    if isinstance(origin, Edge):
        name = f"{origin.producer}_to_{origin.consumer}_g{generation}"
        return ChannelInput(edge=origin, folder=channels[origin.producer], name=name, start={})
    return SourceInput(operator=origin, name=f"{origin}_g{generation}", start={})


def _folder(source: QueryInput) -> str | None:
    return source.folder if isinstance(source, ChannelInput) else None
