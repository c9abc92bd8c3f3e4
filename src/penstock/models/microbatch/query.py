"""A query whose stages may each have their own number of replicas, and the best numbers. Exact in whole numbers.

    D* = A / (1 - lambda C),   A = a + sum_s b k_s,   C = sum_s v_s c_s / min(k_s, slots)

The ratio is minimised by W. Dinkelbach's method (Management Science 13(7), 1967): for a guess D of the optimum, the k
that minimises A - D (1 - lambda C) falls apart into one convex problem a stage, b k + D lambda v c / k; its value of D*
is the next guess, and where that is no better the optimum is reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.models.queueing.errors import ModelError, UnstableError, count, not_negative, positive, told_apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    name: str
    visits: float  # rows that reach it for each row of the batch
    row_s: float  # seconds of work a row


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchQuery:
    """
    >>> parse = Stage(name="parse", visits=1.0, row_s=0.0005)
    >>> count = Stage(name="count", visits=3.0, row_s=0.0005)
    >>> MicroBatchQuery(batch_s=0.1, replica_s=0.01, slots=8, stages=(parse, count)).best_replicas(1000.0)
    {'parse': 4, 'count': 7}
    """

    batch_s: float
    replica_s: float
    slots: int
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        not_negative("the fixed time of a batch (s)", self.batch_s)
        positive("the time of a replica a batch (s)", self.replica_s)
        count("the number of slots", self.slots)
        if not self.stages or len({stage.name for stage in self.stages}) < len(self.stages):
            raise ModelError("a query has one or more stages, each with a name of its own")
        for stage in self.stages:
            not_negative(f"the visits to stage '{stage.name}'", stage.visits)
            not_negative(f"the work of a row in stage '{stage.name}' (s)", stage.row_s)

    def settled_batch_s(self, arrival_per_s: float, replicas: dict[str, int]) -> float:
        """D*, infinite where the query does not keep up."""
        fixed = self.batch_s + self.replica_s * sum(replicas[stage.name] for stage in self.stages)
        load = arrival_per_s * sum(
            stage.visits * stage.row_s / min(replicas[stage.name], self.slots) for stage in self.stages
        )
        return fixed / (1.0 - load) if load < 1.0 else math.inf

    def latency_s(self, arrival_per_s: float, replicas: dict[str, int]) -> float:
        return 1.5 * self.settled_batch_s(arrival_per_s, replicas)

    def best_replicas(self, arrival_per_s: float) -> dict[str, int]:
        """Replicas of each stage with the shortest latency at this rate."""
        not_negative("the arrival rate (rows/s)", arrival_per_s)
        best = {stage.name: self.slots for stage in self.stages}
        settled = self.settled_batch_s(arrival_per_s, best)
        if settled == math.inf:
            most = self.slots / sum(stage.visits * stage.row_s for stage in self.stages)
            comes, taken = told_apart(arrival_per_s, most)
            raise UnstableError(
                f"a query gets {comes} rows/s but takes {taken} with all {self.slots} slots; give it more slots"
            )
        while True:
            tried = {
                stage.name: self._best_at(settled * arrival_per_s * stage.visits * stage.row_s) for stage in self.stages
            }
            shorter = self.settled_batch_s(arrival_per_s, tried)
            if not shorter < settled:
                return best
            best, settled = tried, shorter

    def _best_at(self, work_s: float) -> int:
        """The whole k in 1..slots that minimises b k + work / k."""
        ideal = math.sqrt(work_s / self.replica_s)
        near = {min(self.slots, max(1, k)) for k in (math.floor(ideal), math.ceil(ideal))}
        return min(sorted(near), key=lambda k: self.replica_s * k + work_s / k)
