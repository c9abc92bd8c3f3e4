"""The graph of regions: Penstock replicates the operators of a region together, so a region has the tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region, regions
from penstock.plan import Plan, default_plan, pipelines
from penstock.plan.cuts import forbidden_cuts
from penstock.store import ProfiledOperator
from penstock.study.stepwise.dominance import dominated_operators
from penstock.study.stepwise.operator_types import OperatorType
from penstock.study.stepwise.task_ratios import OperatorLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFeatures:
    """The features of a dataflow by region, without its sources."""

    loads: Mapping[str, OperatorLoad]
    seconds_per_external_row: Mapping[str, float]  # processing time of a region per row of the sources
    non_scalable: frozenset[str]
    visits: Mapping[str, float]  # rows that reach each operator per external row


def region_features(flow: Dataflow, measured: Sequence[ProfiledOperator]) -> RegionFeatures:
    """Combine the features of operators into those of their regions.

    A row that enters a region takes the sum of the latencies of its operators, each as often as rows reach it.
    """
    by_name = {operator.operator: operator for operator in measured}
    own = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
    sizes = _input_sizes(measured)
    seconds = {
        region.name: sum(by_name[name].min_latency_s * by_name[name].rows_in for name in region.operators)
        for region in own
    }
    loads = {}
    for region in own:
        rows_in = by_name[region.name].rows_in
        loads[region.name] = OperatorLoad(
            min_latency_s=seconds[region.name] / rows_in if rows_in else 0.0,
            input_size=sizes.get(region.name, 0.0),
            non_parallel=not region.replicable,
        )
    return RegionFeatures(
        loads=loads,
        seconds_per_external_row=seconds,
        non_scalable=_non_scalable(flow, own, by_name),
        visits={operator.operator: operator.rows_in for operator in measured},
    )


def _input_sizes(measured: Sequence[ProfiledOperator]) -> dict[str, float]:
    sizes: dict[str, float] = {}
    for operator in measured:
        for consumer, share in operator.streams.items():
            sizes[consumer] = sizes.get(consumer, 0.0) + share
    return sizes


def _non_scalable(flow: Dataflow, own: Sequence[Region], by_name: Mapping[str, ProfiledOperator]) -> frozenset[str]:
    """Return the regions that logic-dependent operators dominate."""
    inputs = {
        operator.name: [name for name in operator.inputs if name not in operator.feedback]
        for operator in flow.operators
    }
    logic = [name for name in inputs if by_name[name].type == OperatorType.LOGIC_DEPENDENT]
    dominated = dominated_operators(inputs, logic)
    return frozenset(region.name for region in own if region.name in dominated)


def region_inputs(flow: Dataflow) -> dict[str, frozenset[str]]:
    """Return the regions that each region reads, upstream first, without sources and without loops."""
    own = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
    region_of = {name: region.name for region in own for name in region.operators}
    return {
        region.name: frozenset(
            region_of[before]
            for name in region.operators
            for before in flow[name].inputs
            if before in region_of and before not in flow[name].feedback
        )
        - {region.name}
        for region in own
    }


def equal_within_queries(flow: Dataflow, ratio: Mapping[str, int]) -> dict[str, int]:
    """Return the ratio of an engine on which the stages of a query take turns, such as Spark.

    Stages that take turns do not compete for slots, so each of them gets as many tasks as the largest one of its query.
    """
    result = dict(ratio)
    for pipeline in pipelines(flow, default_plan(flow, replicas=ratio)):
        own = [name for name in ratio if name in pipeline.operators]
        result |= dict.fromkeys(own, max((ratio[name] for name in own), default=1))
    return result


def regions_by_query(flow: Dataflow, plan: Plan) -> list[frozenset[str]]:
    """Return the regions of each query. They take turns on an engine that processes batches."""
    own = [region.name for region in regions(flow) if region.kind is not Kind.SOURCE]
    together = (frozenset(name for name in own if name in pipe.operators) for pipe in pipelines(flow, plan))
    return [names for names in together if names]


def separating_cuts(flow: Dataflow, name: str) -> frozenset[str] | None:
    """Return the cuts that give a region a query of its own; None if one of them is forbidden.

    A region that reads a source directly needs no cut there, because its replicas read the source.
    """
    region = next(region for region in regions(flow) if region.name == name)
    before = [input for input in flow[name].inputs if flow[input].kind is not Kind.SOURCE]
    after = [region.operators[-1]] if flow.consumers(region.operators[-1]) else []
    cuts = frozenset((*before, *after))
    return None if cuts & forbidden_cuts(flow).keys() else cuts


def grown(ratio: Mapping[str, int], queries: Sequence[frozenset[str]], slots: int, rounds: int) -> dict[str, int]:
    """Return the smallest multiple of the reduced ratio with which the tasks reach the slots in so many rounds.

    Regions of one query take turns, so the largest of them counts.

    >>> grown({"parse": 1, "count": 1}, [frozenset({"parse", "count"})], slots=16, rounds=4)
    {'parse': 4, 'count': 4}
    >>> grown({"a": 1, "b": 2}, [frozenset({"a"}), frozenset({"b"})], slots=4, rounds=4)
    {'a': 1, 'b': 2}
    """
    divisor = math.gcd(*ratio.values()) or 1
    at_once = sum(max((ratio.get(name, 0) for name in names), default=0) for names in queries) // divisor
    factor = math.ceil(slots / (rounds * at_once)) if at_once else 1
    return {name: count // divisor * factor for name, count in ratio.items()}
