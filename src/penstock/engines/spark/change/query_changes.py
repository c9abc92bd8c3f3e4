"""What a plan change does to the running queries, worked out before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow import Dataflow, Kind
from penstock.engines.spark.run_directory.committed import ChannelInput, Committed, Query, channels_read
from penstock.plan import Pipeline, Plan, pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A pipeline that needs a new query, and what that query takes over."""

    pipeline: Pipeline
    channels: dict[str, str]  # cut operator -> folder, under the new plan
    heir_of: Query | None  # whose checkpoint it goes on from
    in_place: bool  # it goes on in that very checkpoint, even in the middle of a batch

    @property
    def repartition_to(self) -> int | None:
        """The new number of state partitions, if it is another one."""
        count = self.pipeline.state_replicas
        if self.heir_of is None or count is None:
            return None
        before = {self.heir_of.replicas[name] for name in self.pipeline.state}
        return None if before == {count} else count


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    keep: tuple[Query, ...]
    stop: tuple[Query, ...]  # upstream first
    begin: tuple[Begin, ...]  # upstream first
    channels: dict[str, str]
    generation: int

    def drains(self, query: Query) -> bool:
        """Whether this query must end at a batch boundary: unless its heir goes on in its very checkpoint."""
        return not any(begin.in_place and begin.heir_of is query for begin in self.begin)

    def vanishing(self, query: Query) -> tuple[ChannelInput, ...]:
        """Its inputs whose channel is no more: they must be read to their end first."""
        alive = set(self.channels.values())
        return tuple(
            source for source in query.inputs if isinstance(source, ChannelInput) and source.folder not in alive
        )


def change(flow: Dataflow, old: Committed | None, plan: Plan) -> Change:
    """The difference between the queries that run and those that the plan asks for."""
    generation = old.generation + 1 if old else 1
    before = old.channels if old else {}
    channels = {
        one.name: before.get(one.name) or f"{one.name}_g{generation}" for one in flow.operators if one.name in plan.cuts
    }
    running = old.queries if old else ()
    keep: list[Query] = []
    begin: list[Begin] = []
    for pipeline in pipelines(flow, plan):
        same = next((query for query in running if query.runs(pipeline, channels)), None)
        if same is not None:
            keep.append(same)
        else:
            begin.append(_begin(flow, pipeline, channels, running))
    stop = tuple(query for query in running if query not in keep)
    return Change(keep=tuple(keep), stop=stop, begin=tuple(begin), channels=channels, generation=generation)


def _begin(flow: Dataflow, pipeline: Pipeline, channels: dict[str, str], running: tuple[Query, ...]) -> Begin:
    if pipeline.state:  # the state decides: it cannot be anywhere else
        heir_of = next((query for query in running if pipeline.state[0] in query.operators), None)
    else:
        stateless = [query for query in running if not any(flow[name].kind.has_state for name in query.operators)]
        heir_of = next((query for query in stateless if query.operators == pipeline.operators), None)
    begin = Begin(pipeline=pipeline, channels=channels, heir_of=heir_of, in_place=False)
    if heir_of is None:
        return begin
    in_place = (
        heir_of.operators == pipeline.operators
        and heir_of.channels_read == channels_read(pipeline, channels)
        and heir_of.appends_to == channels.get(pipeline.output)
        and begin.repartition_to is None
    )
    return Begin(pipeline=pipeline, channels=channels, heir_of=heir_of, in_place=in_place)


def source_operators(flow: Dataflow, operators: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in operators if flow[name].kind is Kind.SOURCE)
