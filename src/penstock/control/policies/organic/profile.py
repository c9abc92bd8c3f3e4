"""The profiler: throughput, utilisation and costs of each region, from the smoothed window (section 4.1).

- *Utilisation of a pipeline*, row by row: busy time of its replicas / (replicas x time), overhead included.
- *Utilisation of a pipeline*, in micro-batches: the stages of a query take turns. The busy share of the query is the
  task time of all stages per replica and second. The fixed time of a batch does not count then, because Spark runs
  batches all the time even if few rows arrive. If more rows wait than a batch takes, batches follow each other without
  a pause, and the busy share is that of the time in which a batch was in progress. The longest stage has the busy share
  of the query, and a shorter stage has less in proportion to its own task time.
- *Cost of an operator*: its share of the busy time of the pipeline; in micro-batches, its task time / batch time.
- *Overhead*: 1 - sum of the costs. It is the time to move rows, or the fixed time of a batch.
- *Throughput of a region*: rows/s that its slowest pipeline processed, in rows that enter the region. A cut is a log
  without a limit, so a pipeline may be faster than the next one. In micro-batches, it is the utilisation times the
  replicas / the cost of a row: all rows of a batch count when it ends, so that the rows of a few windows say little.
  A pipeline behind a cut then counts with the rows/s that it would process if it were busy all the time. After a
  change it is idle until the first batch before it ends, which says nothing about its speed.

The paper samples every second and averages exponentially over 30 s. Here each window is a sample, and the controller
averages the windows of 30 s exponentially (`api/policy_options.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from penstock.control.demand import Demand
from penstock.control.policies.organic.splitting import OperatorStep
from penstock.control.policy import Situation
from penstock.control.region_configuration import owned_cuts
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region
from penstock.measure.window import OperatorWindow, PipelineWindow
from penstock.plan.pipelines import pipelines


class PipelineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a region between two cuts, or in micro-batches the query that executes it."""

    name: str  # its first operator within the region
    last: str  # its last operator within the region
    utilisation: float
    steps: tuple[OperatorStep, ...]


class RegionProfile(msgspec.Struct, frozen=True, kw_only=True):
    region: str
    rows_per_s: float  # processed
    offered_per_s: float  # rows/s that would arrive if everything upstream kept up
    completed_per_s: float  # processed by its last operator, in rows that enter the region
    pipelines: tuple[PipelineProfile, ...]

    @property
    def utilisation(self) -> float:
        return max((pipeline.utilisation for pipeline in self.pipelines), default=0.0)

    @property
    def shortfall(self) -> float:
        """Return how many times the processed rows would have to be processed; at least 1."""
        return max(1.0, self.offered_per_s / self.rows_per_s) if self.rows_per_s > 0 else 1.0


Profiles = Mapping[str, RegionProfile]  # region -> profile, upstream first


def unknown_utilisations(situation: Situation, demand: Demand) -> list[str]:
    """Return the operators with input whose utilisation was not measured. A sink may have none."""
    assert situation.window is not None
    seen = {operator.operator: operator for operator in situation.window.operators}
    return [
        name
        for region in situation.topology.regions
        if region.name in demand.loads
        for name in region.operators
        if situation.topology.operators[name].kind is not Kind.SINK
        and (name not in seen or seen[name].utilisation is None)
    ]


def profiles_of(situation: Situation, demand: Demand) -> dict[str, RegionProfile]:
    """Return the profile of each region. The utilisations must be known."""
    assert situation.window is not None
    seen = {operator.operator: operator for operator in situation.window.operators}
    parts = _query_parts if situation.micro_batch else _thread_parts
    result = {}
    for region in situation.topology.regions:
        own = tuple(parts(situation, region, seen))
        busy = {pipeline.name: pipeline.utilisation for pipeline in own} if situation.micro_batch else {}
        result[region.name] = RegionProfile(
            region=region.name,
            rows_per_s=_rows_per_s(region, situation.plan.cuts, seen, busy),
            offered_per_s=demand.arrivals.get(region.name, 0.0),
            completed_per_s=_completed_per_s(_without_sink(situation, region), seen),
            pipelines=own,
        )
    return result


def _rows_per_s(
    region: Region, cuts: frozenset[str], seen: Mapping[str, OperatorWindow], busy: Mapping[str, float]
) -> float:
    rates: list[float] = []
    gain = 1.0
    for names in _parts(region, cuts):
        first = seen.get(names[0])
        processed = None if first is None else processed_rows_per_s(first)
        if processed is not None and gain > 0.0:
            share = busy.get(names[0], 1.0) if rates else 1.0
            rates.append(processed / gain / share if share > 0.0 else math.inf)
        for name in names:
            selectivity = seen[name].selectivity if name in seen else None
            gain *= 1.0 if selectivity is None else selectivity
    return min(rates, default=0.0)


def processed_rows_per_s(operator: OperatorWindow) -> float | None:
    """Return the processed rows/s; over whole batches if the engine measures the time of these."""
    cost_s, busy, replicas = operator.seconds_per_row, operator.utilisation, operator.replicas
    if operator.utilisation_s and cost_s and busy is not None and replicas:
        return busy * replicas / cost_s
    return operator.processed_rows_per_s


def _without_sink(situation: Situation, region: Region) -> tuple[str, ...]:
    """Return the operators of a region without a sink at its end, which has no cost from which whole batches follow."""
    *before, last = region.operators
    is_sink = situation.topology.operators[last].kind is Kind.SINK
    return tuple(before) if is_sink and before else region.operators


def _completed_per_s(names: Sequence[str], seen: Mapping[str, OperatorWindow]) -> float:
    *before, last = (seen.get(name) for name in names)
    gain = math.prod(1.0 if operator is None else operator.selectivity or 0.0 for operator in before)
    processed = None if last is None else processed_rows_per_s(last)
    return processed / gain if processed is not None and gain > 0.0 else 0.0


def _busy(seen: Mapping[str, OperatorWindow], name: str) -> float:
    return (seen[name].utilisation or 0.0) if name in seen else 0.0


def _parts(region: Region, cuts: frozenset[str]) -> list[tuple[str, ...]]:
    """Return the operators of a region between its cuts."""
    parts: list[list[str]] = [[]]
    for name in region.operators:
        parts[-1].append(name)
        if name in cuts and name != region.operators[-1]:
            parts.append([])
    return [tuple(part) for part in parts]


def _thread_parts(
    situation: Situation, region: Region, seen: Mapping[str, OperatorWindow]
) -> Sequence[PipelineProfile]:
    forbidden = situation.topology.forbidden_cuts
    result = []
    for names in _parts(region, situation.plan.cuts):
        moving = (seen[names[0]].overhead or 0.0) if names[0] in seen else 0.0
        total = moving + sum(_busy(seen, name) for name in names)
        steps = tuple(
            OperatorStep(
                operator=name, cost=_busy(seen, name) / total if total > 0 else 0.0, cuttable=name not in forbidden
            )
            for name in names
        )
        result.append(PipelineProfile(name=names[0], last=names[-1], utilisation=min(1.0, total), steps=steps))
    return result


def _query_parts(situation: Situation, region: Region, seen: Mapping[str, OperatorWindow]) -> Sequence[PipelineProfile]:
    assert situation.window is not None
    topology = situation.topology
    measured = {pipeline.pipeline: pipeline for pipeline in situation.window.pipelines}
    span_s = situation.window.end_s - situation.window.start_s
    owned = set(owned_cuts(topology, region, micro_batch=True)) - topology.forbidden_cuts
    region_of = {name: other.name for other in topology.regions for name in other.operators}
    result = []
    for query in pipelines(topology.flow, situation.plan):
        own = [name for name in query.operators if region_of.get(name) == region.name]
        if not own:
            continue
        names = [name for name in query.operators if name in region_of]
        stages: dict[str, float] = {}
        for name in names:
            stages[region_of[name]] = stages.get(region_of[name], 0.0) + _busy(seen, name)
        total, longest = sum(stages.values()), max(stages.values())
        in_batches = max(total, _batch_share(measured.get(query.name), span_s))
        # The operators of other regions in the query are steps only if the query is a chain.
        is_chain = all(len(topology.operators[name].inputs) <= 1 for name in names)
        steps = tuple(
            OperatorStep(
                operator=name, cost=_busy(seen, name) / in_batches if in_batches > 0 else 0.0, cuttable=name in owned
            )
            for name in (names if is_chain else own)
        )
        busy = in_batches if _rows_wait(measured.get(query.name)) else total
        utilisation = busy * stages[region.name] / longest if longest > 0 else 0.0
        result.append(PipelineProfile(name=own[0], last=own[-1], utilisation=min(1.0, utilisation), steps=steps))
    return result


def _rows_wait(pipeline: PipelineWindow | None) -> bool:
    """Return whether more rows wait than a batch takes, so that the next batch begins at once."""
    if pipeline is None or not pipeline.batches or pipeline.backlog_rows is None:
        return False
    return pipeline.backlog_rows > pipeline.rows_in / pipeline.batches


def _batch_share(pipeline: PipelineWindow | None, span_s: float) -> float:
    """Return the share of the time in which a batch was in progress; 0 if it is unknown."""
    if pipeline is None or pipeline.batch_s is None or span_s <= 0:
        return 0.0
    return min(1.0, pipeline.batches * pipeline.batch_s / span_s)
