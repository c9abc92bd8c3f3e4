"""One change of plan: its queries compiled, the old ones stopped, their checkpoints handed on, the new ones started."""

from __future__ import annotations

import shutil
import time

from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, PenstockError
from penstock.engines.spark.change.query_changes import Begin, Change, source_operators
from penstock.engines.spark.compile.compiler import Compiled
from penstock.engines.spark.jvm import repartition_state
from penstock.engines.spark.queries.queries import Queries
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.reading.gate import save_starts
from penstock.engines.spark.run_directory.committed import Query, Use
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.sources.contract import Offset, StreamSource
from penstock.engines.spark.storage.columns import declared_columns
from penstock.plan import Plan


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
                schema = declared_columns(f"the loop that '{name}' closes", declared)
                self._directory.create_channel(folder, schema.json(), None)
        drafts = []
        for begin in self._todo.begin:
            draft = self._draft(begin)
            compiled = self._queries.compile(draft, begin.pipeline)
            folder = self._todo.channels.get(begin.pipeline.output)
            if folder is not None and not self._directory.has_channel(folder):
                event_time = compiled.events.time if compiled.events else None
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
            return self._query(begin, heir.checkpoint, heir.sources)
        sources: dict[str, Use] = {}
        for key in (*source_operators(self._flow, begin.pipeline.operators), *begin.inputs):
            folder = begin.channels.get(key.partition(">")[0]) if ">" in key else None
            if heir is not None and key in heir.sources and heir.reads.get(key) == folder:
                sources[key] = heir.sources[key]  # its checkpoint knows how far it is
            else:
                sources[key] = Use(name=_source_name(key, self._todo.generation), start={})
        return self._query(begin, f"{begin.pipeline.name}_g{self._todo.generation}", sources)

    def _query(self, begin: Begin, checkpoint: str, sources: dict[str, Use]) -> Query:
        return Query(
            operators=begin.pipeline.operators,
            replicas=dict(begin.pipeline.replicas),
            checkpoint=checkpoint,
            opens_at=self._todo.generation,
            sources=sources,
            reads={key: self._todo.channels[key.partition(">")[0]] for key in begin.inputs},
            appends_to=self._todo.channels.get(begin.pipeline.output),
        )

    def _stop(self) -> dict[str, dict[str, Offset]]:
        """Stops what the change touches, upstream first; says where each stood: checkpoint -> key -> offset."""
        positions: dict[str, dict[str, Offset]] = {}
        for query in self._todo.stop:
            running = self._queries.running[query.checkpoint]
            if self._todo.drains(query):
                for key in self._todo.vanishing(query):
                    end = self._directory.channel(query.reads[key]).end()
                    self._queries.await_position(query, key, end)
                running.drain(self._directory.path)
            else:
                running.drain(self._directory.path, self._patience_s)
            self.paused_at = self.paused_at or time.monotonic()
            self._queries.halt(running)
            if self._todo.drains(query) and self._directory.checkpoint(query).interrupted():
                self._queries.finish_batch(query, self._queries.pipeline(query, self._before))
            positions[query.checkpoint] = {key: self._directory.position(query, key) for key in query.sources}
        return positions

    def _prepare(self, begin: Begin, draft: Query, positions: dict[str, dict[str, Offset]]) -> Query:
        """The new query with its starting points, and its checkpoint laid ready."""
        if begin.in_place:
            return draft
        sources = {}
        for key, use in draft.sources.items():
            folder = draft.reads.get(key)
            readers = [query for query in self._todo.stop if key in query.sources and query.reads.get(key) == folder]
            start = positions[readers[0].checkpoint][key] if readers else self._first(key, folder)
            inherited = begin.heir_of is not None and begin.heir_of.sources.get(key) == use
            sources[key] = use if inherited else Use(name=use.name, start=start)
        save_starts(self._directory.path, draft.checkpoint, {use.name: use.start for use in sources.values()})
        target = self._directory.checkpoint_folder(draft)
        shutil.rmtree(target, ignore_errors=True)
        if begin.heir_of is None:
            target.mkdir(parents=True)
        else:
            checkpoint = self._directory.checkpoint(begin.heir_of).hand_on(target)
            if begin.repartition_to is not None and checkpoint.committed() is not None and checkpoint.has_state():
                repartition_state(self._spark, target, begin.repartition_to)
        return self._query(begin, draft.checkpoint, sources)

    def _first(self, key: str, folder: str | None) -> Offset:
        return self._directory.channel(folder).first() if folder is not None else self._sources[key].first()


def _source_name(key: str, generation: int) -> str:
    return f"{key.replace('>', '_to_')}_g{generation}"
