"""The pipelines and replicas with the highest predicted throughput for a number of slots.

The search is exact. For each region, number of replicas and number of pipelines, the best division of the chain of
operators is found by dynamic programming over its positions. The slowest region limits the throughput, so the shortest
time for which the slots suffice is found by bisection. Both are polynomial, so no heuristic is needed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
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
    options = [region_choices(region, slots, costs) for region in regions]

    def fewest_threads(limit_s: float) -> list[RegionChoice] | None:
        """Return the choices with the fewest threads that take at most this time; None if a region is slower."""
        chosen = []
        for choices in options:
            number = bisect_left(choices, -limit_s, key=lambda choice: -choice.seconds)
            if number == len(choices):
                return None
            chosen.append(choices[number])
        return chosen

    def fits(limit_s: float) -> bool:
        chosen = fewest_threads(limit_s)
        return chosen is not None and sum(choice.threads for choice in chosen) <= slots

    times_s = sorted({choice.seconds for choices in options for choice in choices})
    shortest = bisect_left(times_s, True, key=fits)
    chosen = fewest_threads(times_s[shortest]) if shortest < len(times_s) else None
    if chosen is None:
        return None
    return FissionPlan(choices={region.name: choice for region, choice in zip(regions, chosen, strict=True)})


def region_choices(region: FissionRegion, slots: int, costs: FissionCosts) -> list[RegionChoice]:
    """Return the choices of a region that are faster than all choices with fewer threads, fewest threads first."""
    fastest: dict[int, RegionChoice] = {}
    most = slots if region.max_replicas is None else min(slots, region.max_replicas)
    for replicas in range(region.min_replicas, most + 1):
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
