"""The running queries that a new plan keeps, stops and starts. This is computed before anything is touched.

A query that already runs a pipeline of the new plan, with the same replicas, groups and channels, is kept and does not
notice the change. All other queries stop. Each remaining pipeline gets a new query with one of three kinds of
checkpoint:

1. It *reuses* the checkpoint of its predecessor if operators, inputs and output are the same and only the replicas of
   stateless operators, or the groups of executors, differ. Spark itself then repeats an interrupted batch, so the
   predecessor need not finish it.
2. It gets a *copy* of the checkpoint of its predecessor, possibly with its state repartitioned, if the predecessor
   holds its state or has the same operators. The predecessor first ends at a batch boundary. Offsets and state in the
   copy then belong together, and the original stays intact for a rollback. If a new cut separates the states of one
   query, each new query gets a copy with its own states (see `run_directory.division`). The opposite does not happen:
   `plan.succession` refuses a plan that would merge checkpoints.
3. It gets a *new* checkpoint otherwise. It begins to read each input where the stopped reader of that input ended.

In all three cases every row of an input is read by exactly one batch that is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.dataflow import Dataflow
from penstock.engines.spark.run_directory.committed import ChannelInput, Committed, Query, channels_read
from penstock.plan import Pipeline, Plan, pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStart:
    """A pipeline that needs a new query, and the query whose checkpoint the new one continues."""

    pipeline: Pipeline
    channels: dict[str, str]  # cut operator -> channel folder, under the new plan
    predecessor: Query | None
    reuses_checkpoint: bool  # the checkpoint of the predecessor itself instead of a copy
    divides_states: bool = False  # the predecessor has more operators with state than the new query

    @property
    def repartition_to(self) -> int | None:
        """Return the new number of state partitions, or None if it stays the same."""
        count = self.pipeline.state_replicas
        if self.predecessor is None or count is None:
            return None
        before = {self.predecessor.replicas[name] for name in self.pipeline.state}
        return None if before == {count} else count


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChanges:
    """The difference between the running queries and those of a new plan. Queries are ordered upstream first."""

    keep: tuple[Query, ...]
    stop: tuple[Query, ...]
    start: tuple[QueryStart, ...]
    channels: dict[str, str]  # cut operator -> channel folder
    generation: int

    def ends_at_batch_boundary(self, query: Query) -> bool:
        """Return whether a stopped query must commit its last batch: always, unless its checkpoint is reused."""
        return not any(start.reuses_checkpoint and start.predecessor is query for start in self.start)

    def removed_inputs(self, query: Query) -> tuple[ChannelInput, ...]:
        """Return the channels that a query reads and the new plan removes. They must be read to their end first."""
        remaining = set(self.channels.values())
        return tuple(
            source for source in query.inputs if isinstance(source, ChannelInput) and source.folder not in remaining
        )


def plan_query_changes(flow: Dataflow, committed: Committed | None, plan: Plan) -> QueryChanges:
    """Return the changes from the committed plan, or from an empty run, to the queries of a new plan."""
    generation = committed.generation + 1 if committed else 1
    channels_before = committed.channels if committed else {}
    channels = {
        operator.name: channels_before.get(operator.name) or f"{operator.name}_g{generation}"
        for operator in flow.operators
        if operator.name in plan.cuts
    }
    running = committed.queries if committed else ()
    keep: list[Query] = []
    start: list[QueryStart] = []
    for pipeline in pipelines(flow, plan):
        same = next((query for query in running if query.runs(pipeline, channels)), None)
        if same is not None:
            keep.append(same)
        else:
            start.append(_query_start(flow, pipeline, channels, running))
    stop = tuple(query for query in running if query not in keep)
    return QueryChanges(keep=tuple(keep), stop=stop, start=tuple(start), channels=channels, generation=generation)


def _query_start(
    flow: Dataflow, pipeline: Pipeline, channels: dict[str, str], running: tuple[Query, ...]
) -> QueryStart:
    predecessor = _predecessor(flow, pipeline, running)
    states = [name for name in predecessor.operators if flow[name].kind.has_state] if predecessor is not None else []
    start = QueryStart(
        pipeline=pipeline,
        channels=channels,
        predecessor=predecessor,
        reuses_checkpoint=False,
        divides_states=not set(states) <= set(pipeline.state),
    )
    if predecessor is None:
        return start
    reuses_checkpoint = (
        predecessor.operators == pipeline.operators
        and predecessor.channels_read == channels_read(pipeline, channels)
        and predecessor.appends_to == channels.get(pipeline.output)
        and start.repartition_to is None
    )
    return replace(start, reuses_checkpoint=reuses_checkpoint)


def _predecessor(flow: Dataflow, pipeline: Pipeline, running: tuple[Query, ...]) -> Query | None:
    """Return the query that holds the state of a pipeline, or a stateless one with the same operators."""
    if pipeline.state:
        return next((query for query in running if pipeline.state[0] in query.operators), None)
    stateless = [query for query in running if not any(flow[name].kind.has_state for name in query.operators)]
    return next((query for query in stateless if query.operators == pipeline.operators), None)
