"""Distribute the slots anew if only their number prevents a bottleneck from being resolved: an extension of the paper.

Adaptation adds cuts and replicas, and takes them back under low load only. If the slots are used up, some of them may
be of little use, such as those of a cheap pipeline between two cuts. The best distribution is predicted from measured
costs by the model and the exact search of policy `fission-model`. It is one more change, which is evaluated and
reverted like any other.

A change that moves no state is preferred: a second search keeps the replicas of all regions with state. Its plan is
taken if it is worth the change, and if moving state as well would not gain more than the increase that counts.

In micro-batches, regions that share a query take turns in the same slots, so they are one chain of operators here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from penstock.control.demand import Demand
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policy import Situation
from penstock.control.region_configuration import RegionConfiguration, configurations_of
from penstock.control.region_costs import fission_regions
from penstock.models.fission_costs import FissionCosts
from penstock.models.pipelined_fission import FissionRegion
from penstock.plan.pipelines import pipelines
from penstock.plan.plan import Plan
from penstock.planning.pipelined_fission import FissionPlan, best_plan


class Redistribution(msgspec.Struct, frozen=True, kw_only=True):
    """A plan for the same slots, and how much faster it is than the current one by the model."""

    configurations: dict[str, RegionConfiguration]  # by region
    gain: float


def redistribution(situation: Situation, demand: Demand, parameters: AdaptationParameters) -> Redistribution | None:
    """Return the fastest plan for the available slots by the measured costs; None if no plan is faster.

    A plan that keeps the replicas of all regions with state is returned if it is about as fast.
    """
    if not parameters.expands:
        return None
    costs = FissionCosts() if situation.micro_batch else _thread_costs(situation)
    regions = fission_regions(situation, demand)
    limited = [_limited(situation, region, parameters) for region in regions]
    now_s = _seconds(situation, regions, situation.plan, costs)
    fastest = _fastest(situation, regions, limited, parameters, costs)
    if fastest is None or fastest[0] <= 0 or fastest[0] >= now_s:
        return None
    required = 1.0 + parameters.throughput_increase
    kept = [_with_kept_state(situation, region) for region in limited]
    without_move = _fastest(situation, regions, kept, parameters, costs)
    if without_move is not None and now_s > required * without_move[0] and without_move[0] <= required * fastest[0]:
        fastest = without_move
    seconds, plan = fastest
    return Redistribution(
        configurations=configurations_of(situation.topology, plan, micro_batch=situation.micro_batch),
        gain=now_s / seconds - 1.0,
    )


def _with_kept_state(situation: Situation, region: FissionRegion) -> FissionRegion:
    """Return the region with its current number of replicas, if other replicas would move state."""
    operators = situation.topology.operators
    if not any(operators[name].kind.has_state for name in region.operators):
        return region
    replicas = situation.plan.replicas[region.name]
    return replace(region, min_replicas=replicas, max_replicas=replicas)


def _fastest(
    situation: Situation,
    regions: Sequence[FissionRegion],
    limited: Sequence[FissionRegion],
    parameters: AdaptationParameters,
    costs: FissionCosts,
) -> tuple[float, Plan] | None:
    """Return the time per external row of the fastest plan within the limits, and the plan; None if there is none."""
    topology, plan = situation.topology, situation.plan
    chains = [[region] for region in limited]
    if situation.micro_batch:
        permanent = plan.cuts - topology.removable_cuts(plan)
        chains = _chains(situation, limited, plan.cuts)
        fused = _chains(situation, limited, permanent if parameters.splits else plan.cuts)
        options = [chains, fused] if fused != chains else [chains]
    else:
        options = [chains]
    best: tuple[float, Plan] | None = None
    for option in options:
        distribution = best_plan([_joined(situation, chain) for chain in option], situation.max_slots, costs)
        if distribution is None:
            continue
        candidate = _plan(situation, option, distribution)
        if topology.slots(candidate, micro_batch=situation.micro_batch) > situation.max_slots:
            continue
        seconds = _seconds(situation, regions, candidate, costs)
        if best is None or seconds < best[0]:
            best = seconds, candidate
    return best


def _thread_costs(situation: Situation) -> FissionCosts:
    """Return the measured time to take a row from a queue, as the mean over all threads."""
    assert situation.window is not None
    moving = rows = 0.0
    for operator in situation.window.operators:
        if operator.overhead is not None and operator.processed_rows_per_s and operator.replicas:
            moving += operator.overhead * operator.replicas
            rows += operator.processed_rows_per_s
    return FissionCosts(thread_s=moving / rows if rows > 0 else 0.0)


def _limited(situation: Situation, region: FissionRegion, parameters: AdaptationParameters) -> FissionRegion:
    """Return the region with the cuts and replicas that the run and the parameters allow."""
    kept = situation.plan.cuts - situation.topology.removable_cuts(situation.plan)
    if not parameters.splits:
        kept = situation.plan.cuts
    required = region.required_cuts | {
        position for position, name in enumerate(region.operators[:-1], start=1) if name in kept
    }
    most = [count for count in (region.max_replicas, parameters.max_replicas) if count is not None]
    return replace(
        region,
        required_cuts=frozenset(required),
        allowed_cuts=region.allowed_cuts if parameters.splits else frozenset(required),
        max_replicas=min(most, default=None),
    )


def _chains(
    situation: Situation, regions: Sequence[FissionRegion], separators: frozenset[str]
) -> list[list[FissionRegion]]:
    """Return the regions without one of these cuts between them, upstream first."""
    group = {region.name: [region.name] for region in regions}
    topology = situation.topology
    for before, after in topology.streams:
        if before in group and topology.last_operator(before) not in separators and group[before] is not group[after]:
            group[before].extend(group[after])
            for name in group[after]:
                group[name] = group[before]
    known = {id(names): names for names in group.values()}
    return [[region for region in regions if region.name in names] for names in known.values()]


def _joined(situation: Situation, chain: Sequence[FissionRegion]) -> FissionRegion:
    """Return regions of one query as one region. A query that is a tree gets no cuts besides those it has."""
    if len(chain) == 1:
        return chain[0]
    operators = tuple(name for region in chain for name in region.operators)
    offsets = [0]
    for region in chain:
        offsets.append(offsets[-1] + len(region.operators))
    required = {offset + cut for offset, region in zip(offsets, chain, strict=False) for cut in region.required_cuts}
    allowed = {offset + cut for offset, region in zip(offsets, chain, strict=False) for cut in region.allowed_cuts}
    flow = situation.topology.operators
    is_chain = all(flow[after].inputs == (before,) for before, after in pairwise(operators))
    counts = [region.max_replicas for region in chain if region.max_replicas is not None]
    return FissionRegion(
        name=chain[0].name,
        operators=operators,
        rows=tuple(rows for region in chain for rows in region.rows),
        seconds_per_row=tuple(seconds for region in chain for seconds in region.seconds_per_row),
        required_cuts=frozenset(required),
        allowed_cuts=frozenset(allowed if is_chain else required),
        max_replicas=min(counts, default=None),
        min_replicas=max(region.min_replicas for region in chain),
    )


def _plan(situation: Situation, chains: Sequence[Sequence[FissionRegion]], distribution: FissionPlan) -> Plan:
    """Return the plan of a distribution of the slots over these chains."""
    topology, plan = situation.topology, situation.plan
    replicas = dict(plan.replicas)
    inner: set[str] = set()  # operators within a chain, where cuts are chosen
    chosen: set[str] = set()
    for chain in chains:
        choice = distribution.choices[chain[0].name]
        operators = [name for region in chain for name in region.operators]
        inner.update(operators[:-1])
        chosen.update(operators[cut - 1] for cut in choice.cuts)
        replicas |= {region.name: choice.replicas for region in chain}
    cuts = ((plan.cuts - inner) | chosen | topology.cuts_for(replicas)) - topology.forbidden_cuts
    return topology.successor(plan, plan.replace(cuts=frozenset(cuts), replicas=replicas))


def _seconds(situation: Situation, regions: Sequence[FissionRegion], plan: Plan, costs: FissionCosts) -> float:
    """Return the time per external row of the slowest pipeline of a plan."""
    if not situation.micro_batch:
        return max(
            region.seconds(
                [position for position, name in enumerate(region.operators[:-1], start=1) if name in plan.cuts],
                plan.replicas[region.name],
                costs,
            )
            for region in regions
        )
    row_s = {
        name: rows * seconds
        for region in regions
        for name, rows, seconds in zip(region.operators, region.rows, region.seconds_per_row, strict=True)
    }
    return max(
        math.fsum(row_s[name] / count for name, count in query.replicas)
        for query in pipelines(situation.topology.flow, plan)
    )
