"""The execution of one change of plan, up to the point where the new plan can be committed.

The steps keep the output exact, and keep the old plan valid until the commit:

1. Compile all new queries and create new channels. A query that Spark refuses is found before anything has stopped.
2. Stop the affected queries, upstream first. A query whose channel disappears first reads the channel to its end. A
   query whose checkpoint is copied commits its last batch; an interrupted batch is run again to its end.
3. Prepare the checkpoint of each new query (see `query_changes`) and save the offsets at which it begins to read.
4. Start the new queries. They wait at a closed gate: they take and write no rows before the plan is committed.

The caller commits the plan by replacing one file, which opens the gate. If any step fails, it stops the new queries and
restarts the old ones, whose checkpoints are unchanged.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from penstock.dataflow import Kind, PenstockError, PlanError
from penstock.dataflow.edge import Edge
from penstock.engines.spark.change.query_changes import QueryChanges, QueryStart
from penstock.engines.spark.compile.compiler import Compiled
from penstock.engines.spark.compile.state_owners import StateOwners
from penstock.engines.spark.queries.query_runner import QueryRunner
from penstock.engines.spark.queries.run_context import RunContext
from penstock.engines.spark.queries.running_query import RunningQuery
from penstock.engines.spark.queries.watermarks import carry_over
from penstock.engines.spark.reading.offsets import Offset, save_start_offsets
from penstock.engines.spark.run_directory.checkpoint import Checkpoint
from penstock.engines.spark.run_directory.committed import ChannelInput, Origin, Query, QueryInput, SourceInput
from penstock.engines.spark.run_directory.division import check_states, keep_states, set_watermark
from penstock.engines.spark.run_directory.state_size import StateSize, state_size
from penstock.engines.spark.storage.schemas import parse_schema
from penstock.plan import Pipeline, Plan

_MAX_STARTS = 4  # attempts to start a query in a change
_SLOW_PYTHON = "failed to connect back"
Positions = dict[str, dict[Origin, Offset]]  # checkpoint -> input -> the offset up to which it has been read


@dataclass(slots=True)
class _Division:
    """The states of a query whose checkpoint is divided."""

    owners: StateOwners
    watermarks_ms: dict[int, int] = field(default_factory=dict)  # Spark's number of a state -> watermark


class Changeover:
    """Executes `changes`. `plan_before` is the plan of the stopped queries; None if there are none."""

    def __init__(
        self, context: RunContext, queries: QueryRunner, changes: QueryChanges, plan_before: Plan | None
    ) -> None:
        self._context = context
        self._flow = context.flow
        self._directory = context.directory
        self._queries = queries
        self._changes = changes
        self._plan_before = plan_before
        self._divisions: dict[str, _Division] = {}  # by checkpoint
        self.started: list[RunningQuery] = []  # to be stopped again if the change fails
        self.paused_at: float | None = None  # monotonic time at which the first query was stopped
        self._repartitioned: list[StateSize | None] = []  # the states that were written to other partitions

    def execute(self, on_compiled: Callable[[], None] | None = None) -> list[Query]:
        """Return the new queries, which run but take no rows before the plan is committed."""
        drafts = self.compile_all()
        self._divisions = self._plan_divisions()
        if on_compiled is not None:
            on_compiled()
        positions = self._stop_queries()
        queries = []
        for start, (draft, compiled) in zip(self._changes.start, drafts, strict=True):
            query = self._prepare(start, draft, positions)
            self.started.append(self._queries.start(query, start.pipeline, compiled))
            queries.append(query)
        for index, start in enumerate(self._changes.start):
            self._await_start(index, start)
        return queries

    def moved_state(self) -> StateSize | None:
        """Return the state in all partitions that were written anew; None if the size of one is not known."""
        sizes = [size for size in self._repartitioned if size is not None]
        if len(sizes) < len(self._repartitioned):
            return None
        return StateSize(sum(size.rows for size in sizes), sum(size.bytes for size in sizes))

    def _await_start(self, index: int, start: QueryStart) -> None:
        """Wait until a query has started, and start it again if it fails.

        Spark allows a Python process ten seconds to start, which may not suffice on a busy machine.
        """
        for starts_left in reversed(range(_MAX_STARTS)):
            running = self.started[index]
            try:
                self._queries.await_start(running)
                return
            except PenstockError as error:
                if starts_left == 0 or (starts_left < _MAX_STARTS - 1 and _SLOW_PYTHON not in str(error)):
                    raise
                self._queries.stop(running)
                self.started[index] = self._queries.start(running.record, start.pipeline)

    # ---- compiling

    def compile_all(self) -> list[tuple[Query, Compiled]]:
        """Compile every new pipeline, upstream first, and create the new channels.

        The channel of a loop is created before all others, from its declared schema.
        """
        for name, folder in self._changes.channels.items():
            declared = self._flow[name].feedback_schema
            if declared is not None and not self._directory.has_channel(folder):
                schema = parse_schema(f"the loop that '{name}' closes", declared)
                self._directory.create_channel(folder, schema.json())
        drafts = []
        for start in self._changes.start:
            draft = self._draft(start)
            compiled = self._queries.compile(draft, start.pipeline)
            output = start.pipeline.output
            new_folder = self._changes.channels.get(output)
            if new_folder is not None and not self._directory.has_channel(new_folder):
                keys = self._reader_keys(output, compiled.df.columns)
                self._directory.create_channel(new_folder, compiled.df.schema.json(), keys)
            drafts.append((draft, compiled))
        return drafts

    def _reader_keys(self, cut: str, columns: list[str]) -> tuple[str, ...]:
        """Return the keys by which the readers of a cut group its rows, if all readers have the same keys."""
        keys_of_readers = {reader.keys for reader in self._flow.consumers(cut)}
        keys = keys_of_readers.pop() if len(keys_of_readers) == 1 else ()
        return keys if set(keys) <= set(columns) else ()

    def _draft(self, start: QueryStart) -> Query:
        """Return a new query before it is known where it begins to read."""
        predecessor = start.predecessor
        if start.reuses_checkpoint and predecessor is not None:
            return self._query(start, predecessor.checkpoint, predecessor.inputs)
        sources = [name for name in start.pipeline.operators if self._flow[name].kind is Kind.SOURCE]
        origins: list[Origin] = [*sources, *start.pipeline.inputs]
        inputs: list[QueryInput] = []
        for origin in origins:
            before = predecessor.find_input(origin) if predecessor is not None else None
            fresh = _fresh_input(origin, start.channels, self._changes.generation)
            if before is not None and _folder(before) == _folder(fresh):
                inputs.append(before)  # the checkpoint contains the position under this name
            else:
                inputs.append(fresh)
        return self._query(start, f"{start.pipeline.name}_g{self._changes.generation}", tuple(inputs))

    def _query(self, start: QueryStart, checkpoint: str, inputs: tuple[QueryInput, ...]) -> Query:
        return Query(
            operators=start.pipeline.operators,
            replicas=dict(start.pipeline.replicas),
            groups=dict(start.pipeline.groups),
            checkpoint=checkpoint,
            opens_at=self._changes.generation,
            inputs=inputs,
            appends_to=self._changes.channels.get(start.pipeline.output),
            shares=dict(start.pipeline.shares),
            keeps_all_columns=start.predecessor is None or start.predecessor.keeps_all_columns,
        )

    # ---- stopping

    def _plan_divisions(self) -> dict[str, _Division]:
        """Return the division of each checkpoint whose states go to several queries.

        Raises PlanError if the owner of a state is not known.
        """
        divisions: dict[str, _Division] = {}
        for start in self._changes.start:
            query = start.predecessor
            if query is None or not start.divides_states:
                continue
            owners = self._queries.running[query.checkpoint].compiled.state_owners
            if owners is None:
                names = " and ".join(f"'{name}'" for name in query.operators if self._flow[name].kind.has_state)
                raise PlanError(
                    f"The states of {names} cannot be separated in a running query, because Spark's plan does not show "
                    "to which operator each state belongs; keep them in one query with equal replicas, or begin a new "
                    "run with this plan in another directory."
                )
            divisions[query.checkpoint] = _Division(owners)
        return divisions

    def _stop_queries(self) -> Positions:
        """Stop the queries that the change affects, upstream first; return the positions that they reached."""
        positions: Positions = {}
        for query in self._changes.stop:
            running = self._queries.running[query.checkpoint]
            must_commit = self._changes.ends_at_batch_boundary(query)
            division = self._divisions.get(query.checkpoint)
            if division is not None:  # only a batch of this start shows the watermarks of the states
                assert self._plan_before is not None
                self._queries.await_first_batches([query], self._plan_before)
            if must_commit:
                for source in self._changes.removed_inputs(query):
                    end = self._directory.channel(source.folder).end()
                    self._queries.await_position(query, source, end)
                running.drain(self._directory.path)
            else:
                running.drain(self._directory.path, self._context.settings.drain_patience_s)
            self.paused_at = self.paused_at or time.monotonic()
            self._queries.stop(running)
            if must_commit and self._directory.checkpoint(query).interrupted():
                assert self._plan_before is not None
                running = self._queries.finish_batch(query, self._queries.pipeline(query, self._plan_before))
            if division is not None:
                check_states(self._directory.checkpoint(query), len(division.owners))
                division.watermarks_ms = running.state_watermarks_ms()
            positions[query.checkpoint] = {
                source.origin: self._directory.position(query, source) for source in query.inputs
            }
        return positions

    # ---- checkpoints

    def _prepare(self, start: QueryStart, draft: Query, positions: Positions) -> Query:
        """Create the checkpoint of a new query and return the query with its start offsets."""
        predecessor = start.predecessor
        if start.reuses_checkpoint:
            return draft
        inputs: list[QueryInput] = []
        for source in draft.inputs:
            if predecessor is not None and source in predecessor.inputs:
                inputs.append(source)
            else:
                inputs.append(msgspec.structs.replace(source, start=self._start_offset(source, positions)))
        save_start_offsets(self._directory.path, draft.checkpoint, {source.name: source.start for source in inputs})
        target = self._directory.checkpoint_folder(draft)
        shutil.rmtree(target, ignore_errors=True)
        if predecessor is None:
            target.mkdir(parents=True)
        else:
            checkpoint = self._directory.checkpoint(predecessor).copy_to(target)
            if start.divides_states:
                self._divide(checkpoint, start.pipeline, predecessor)
            # The function of a keyed operator may keep no state, and Spark refuses to repartition a missing one.
            if start.repartition_to is not None and checkpoint.committed() is not None and checkpoint.has_state():
                checkpoint.repartition(self._context.spark, start.repartition_to)
                self._repartitioned.append(state_size(checkpoint))
        carry_over(target, [self._directory.checkpoint_folder(query) for query in self._changes.stop])
        return self._query(start, draft.checkpoint, tuple(inputs))

    def _divide(self, checkpoint: Checkpoint, pipeline: Pipeline, predecessor: Query) -> None:
        """Reduce the copy of a checkpoint to the states of one pipeline."""
        division = self._divisions[predecessor.checkpoint]
        keep_states(checkpoint, [number for number, owner in enumerate(division.owners) if owner in pipeline.state])
        if not any(edge.producer in predecessor.operators for edge in pipeline.inputs):
            return  # it is before the new cuts and continues with the watermark of the query
        first = [name for name in pipeline.state if not self._has_state_before(name, pipeline)]
        watermarks_ms = [
            division.watermarks_ms.get(number) for number, owner in enumerate(division.owners) if owner in first
        ]
        known_ms = [watermark_ms for watermark_ms in watermarks_ms if watermark_ms is not None]
        if len(known_ms) < len(watermarks_ms):
            raise PenstockError(
                f"Pipeline '{pipeline.name}' cannot continue with its part of the state, because pipeline "
                f"'{predecessor.pipeline}' has not run a batch since its start; repeat the change."
            )
        if known_ms:
            set_watermark(checkpoint, min(known_ms))

    def _has_state_before(self, name: str, pipeline: Pipeline) -> bool:
        """Return whether another operator with state comes before this one in the same pipeline."""
        before = [producer for producer in self._flow[name].inputs if producer in pipeline.operators]
        return any(producer in pipeline.state or self._has_state_before(producer, pipeline) for producer in before)

    def _start_offset(self, source: QueryInput, positions: Positions) -> Offset:
        """Return where a new reader of this input begins: where the stopped reader ended, else at the beginning."""
        for query in self._changes.stop:
            before = query.find_input(source.origin)
            if before is not None and _folder(before) == _folder(source):
                return positions[query.checkpoint][source.origin]
        if isinstance(source, ChannelInput):
            return self._directory.channel(source.folder).first()
        return self._context.sources[source.operator].first()


def _fresh_input(origin: Origin, channels: dict[str, str], generation: int) -> QueryInput:
    """Return an input under a new name, because Spark resumes a known name from its old offset."""
    if isinstance(origin, Edge):
        name = f"{origin.producer}_to_{origin.consumer}_g{generation}"
        return ChannelInput(edge=origin, folder=channels[origin.producer], name=name, start={})
    return SourceInput(operator=origin, name=f"{origin}_g{generation}", start={})


def _folder(source: QueryInput) -> str | None:
    return source.folder if isinstance(source, ChannelInput) else None
