"""Pipelines: the operators between the cuts of a plan. Each pipeline runs as one query."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.edge import Edge
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region, regions
from penstock.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The operators of one query, upstream first. The last operator is a sink or writes to a channel."""

    operators: tuple[str, ...]
    inputs: tuple[Edge, ...]  # cut operator -> operator of this pipeline that reads its channel
    replicas: tuple[tuple[str, int], ...]  # operator -> replicas, for all but sources
    state: tuple[str, ...]  # the operators that keep state
    groups: tuple[tuple[str, str], ...] = ()  # operator -> group of executors, for those that have one
    # operator -> shares of its rows by replica, for operators whose replicas do not have equal shares
    shares: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @property
    def output(self) -> str:
        """Its last operator."""
        return self.operators[-1]

    @property
    def name(self) -> str:
        """The name of its last operator, which no other pipeline contains."""
        return self.output

    @property
    def state_replicas(self) -> int | None:
        """Replicas of its operators with state; None if it has no state."""
        counts = {count for operator, count in self.replicas if operator in self.state}
        return counts.pop() if counts else None


def pipelines(flow: Dataflow, plan: Plan) -> tuple[Pipeline, ...]:
    """Return the pipelines of a validated plan, upstream first.

    The output of an operator with several consumers is always cut. Each pipeline is therefore a tree with one exit.
    """
    all_regions = regions(flow)
    stateless = [region for region in all_regions if region.kind is Kind.STATELESS]
    replicas = {
        name: plan.replicas[region.name]
        for region in all_regions
        if region.kind is not Kind.SOURCE
        for name in region.operators
    }
    group_of = plan.group_of
    result = []
    for operator in flow.operators:
        if operator.kind is not Kind.SINK and operator.name not in plan.cuts:
            continue
        members: list[str] = []
        inputs: list[Edge] = []
        frontier = [operator.name]
        while frontier:
            name = frontier.pop()
            members.append(name)
            for before in reversed(flow[name].inputs):
                if before in plan.cuts:
                    inputs.append(Edge(before, name))
                else:
                    frontier.append(before)
        order = [candidate.name for candidate in flow.operators if candidate.name in members]
        result.append(
            Pipeline(
                operators=tuple(order),
                inputs=tuple(inputs),
                replicas=tuple((name, replicas[name]) for name in order if name in replicas),
                state=tuple(name for name in order if flow[name].kind.has_state),
                groups=tuple((name, group_of[name]) for name in order if name in group_of),
                shares=_shares(stateless, plan, order),
            )
        )
    return tuple(result)


def _shares(stateless: list[Region], plan: Plan, members: list[str]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the shares of operators without state. Operators of a pipeline that are replicated together share them."""
    result = []
    for region in stateless:
        own = [name for name in region.operators if name in members]
        if shares := plan.shares(own):
            result += [(name, shares) for name in own]
    return tuple(result)
