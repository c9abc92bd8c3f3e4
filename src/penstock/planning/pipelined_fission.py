"""The pipelines and replicas with the highest predicted throughput for a number of slots.

The search is exact. For each region, number of replicas and number of pipelines, the best division of the chain of
operators is found by dynamic programming over its positions. A second dynamic program distributes the slots over the
regions, because the slowest region limits the throughput. Both are polynomial, so no heuristic is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.models.fission_costs import FissionCosts
from penstock.models.pipelined_fission import FissionRegion


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionChoice:
    """The parallelism of one region."""

    replicas: int
    cuts: tuple[int, ...]  # positions at which a pipeline begins
    seconds: float  # time per external row of its slowest pipeline

    @property
    def threads(self) -> int:
        return self.replicas * (1 + len(self.cuts))


@dataclass(frozen=True, slots=True, kw_only=True)
class FissionPlan:
    choices: dict[str, RegionChoice]  # by region

    @property
    def threads(self) -> int:
        return sum(choice.threads for choice in self.choices.values())

    @property
    def rows_per_s(self) -> float:
        """Return the predicted external rows/s."""
        slowest = max(choice.seconds for choice in self.choices.values())
        return 1.0 / slowest if slowest > 0 else math.inf


def best_plan(regions: Sequence[FissionRegion], slots: int, costs: FissionCosts) -> FissionPlan | None:
    """Return the plan with the highest throughput, and the fewest slots among equal ones; None if the slots are few."""
    best: dict[int, tuple[float, tuple[RegionChoice, ...]]] = {0: (0.0, ())}  # threads -> slowest region, choices
    for region in regions:
        options = region_choices(region, slots, costs)
        longer: dict[int, tuple[float, tuple[RegionChoice, ...]]] = {}
        for used, (seconds, chosen) in best.items():
            for option in options:
                threads = used + option.threads
                slowest = max(seconds, option.seconds)
                if threads <= slots and (threads not in longer or slowest < longer[threads][0]):
                    longer[threads] = slowest, (*chosen, option)
        best = longer
    if not best:
        return None
    _, _, chosen = min((seconds, threads, chosen) for threads, (seconds, chosen) in _ordered(best))
    return FissionPlan(choices={region.name: choice for region, choice in zip(regions, chosen, strict=True)})


def _ordered(
    best: dict[int, tuple[float, tuple[RegionChoice, ...]]],
) -> list[tuple[int, tuple[float, tuple[RegionChoice, ...]]]]:
    """Return the entries that are faster than all with fewer threads, so that no two have the same time."""
    result: list[tuple[int, tuple[float, tuple[RegionChoice, ...]]]] = []
    for threads in sorted(best):
        if not result or best[threads][0] < result[-1][1][0]:
            result.append((threads, best[threads]))
    return result


def region_choices(region: FissionRegion, slots: int, costs: FissionCosts) -> list[RegionChoice]:
    """Return the choices of a region that are faster than all choices with fewer threads, fewest threads first."""
    fastest: dict[int, RegionChoice] = {}
    most = slots if region.max_replicas is None else min(slots, region.max_replicas)
    for replicas in range(1, most + 1):
        for cuts in _divisions(region, slots // replicas, replicas, costs):
            choice = RegionChoice(replicas=replicas, cuts=cuts, seconds=region.seconds(cuts, replicas, costs))
            known = fastest.get(choice.threads)
            if known is None or choice.seconds < known.seconds:
                fastest[choice.threads] = choice
    result: list[RegionChoice] = []
    for threads in sorted(fastest):
        if not result or fastest[threads].seconds < result[-1].seconds:
            result.append(fastest[threads])
    return result


def _divisions(region: FissionRegion, max_parts: int, replicas: int, costs: FissionCosts) -> list[tuple[int, ...]]:
    """Return, for each possible number of pipelines, the cuts with the fastest slowest pipeline."""
    size = len(region.operators)
    starts = sorted({0} | region.required_cuts | region.allowed_cuts)
    # division[end] is the best division of the operators before `end` into the current number of parts.
    division: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    result = []
    for _ in range(min(max_parts, len(starts))):
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for first, (seconds, cuts) in division.items():
            for end in [*starts, size]:
                if end <= first or any(first < cut < end for cut in region.required_cuts):
                    continue
                slowest = max(seconds, region.pipeline_s(first, end, replicas, costs))
                if end not in longer or slowest < longer[end][0]:
                    longer[end] = slowest, cuts if first == 0 else (*cuts, first)
        if size in longer:
            result.append(longer[size][1])
        division = {end: best for end, best in longer.items() if end < size}
    return result
