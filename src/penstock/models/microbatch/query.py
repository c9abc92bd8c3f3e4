"""A query whose stages have separate numbers of replicas, and the optimal numbers. Exact for whole numbers.

    D* = A / (1 - lambda C),   A = a + sum_s b k_s,   C = sum_s v_s c_s / min(k_s, slots)

W. Dinkelbach's method (Management Science 13(7), 1967) minimises the ratio. For a guess D of the optimum, minimising
A - D (1 - lambda C) separates into one convex problem per stage, b k + D lambda v c / k. The D* of the solution is the
next guess. The optimum is reached when D* no longer decreases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.models.queueing.errors import ModelError, UnstableError, count, distinguishable, not_negative, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStage:
    """One stage of a query."""

    name: str
    visits: float  # rows that reach the stage per row of the batch
    row_s: float  # seconds of work per row


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchQuery:
    """A query with a fixed time per batch, a time per replica, and stages.

    >>> parse = QueryStage(name="parse", visits=1.0, row_s=0.0005)
    >>> count = QueryStage(name="count", visits=3.0, row_s=0.0005)
    >>> MicroBatchQuery(batch_s=0.1, replica_s=0.01, slots=8, stages=(parse, count)).best_replicas(1000.0)
    {'parse': 4, 'count': 7}
    """

    batch_s: float
    replica_s: float
    slots: int
    stages: tuple[QueryStage, ...]

    def __post_init__(self) -> None:
        not_negative("the fixed time of a batch (s)", self.batch_s)
        positive("the time per replica and batch (s)", self.replica_s)
        count("the number of slots", self.slots)
        if not self.stages or len({stage.name for stage in self.stages}) < len(self.stages):
            raise ModelError("A query needs one or more stages, each with a unique name.")
        for stage in self.stages:
            not_negative(f"the visits to stage '{stage.name}'", stage.visits)
            not_negative(f"the work of a row in stage '{stage.name}' (s)", stage.row_s)

    def steady_batch_s(self, arrival_per_s: float, replicas: dict[str, int]) -> float:
        """Return D*; infinite if the query is unstable."""
        fixed = self.batch_s + self.replica_s * sum(replicas[stage.name] for stage in self.stages)
        load = arrival_per_s * sum(
            stage.visits * stage.row_s / min(replicas[stage.name], self.slots) for stage in self.stages
        )
        return fixed / (1.0 - load) if load < 1.0 else math.inf

    def latency_s(self, arrival_per_s: float, replicas: dict[str, int]) -> float:
        """Return the mean latency 1.5 D*."""
        return 1.5 * self.steady_batch_s(arrival_per_s, replicas)

    def best_replicas(self, arrival_per_s: float) -> dict[str, int]:
        """Return the replicas of each stage with the lowest latency at this rate.

        Raise an UnstableError if none is stable.
        """
        not_negative("the arrival rate (rows/s)", arrival_per_s)
        best = {stage.name: self.slots for stage in self.stages}
        steady = self.steady_batch_s(arrival_per_s, best)
        if steady == math.inf:
            capacity_per_s = self.slots / sum(stage.visits * stage.row_s for stage in self.stages)
            arriving, processed = distinguishable(arrival_per_s, capacity_per_s)
            raise UnstableError(
                f"A query receives {arriving} rows/s but processes {processed} with all {self.slots} slots. Add slots."
            )
        while True:
            tried = {
                stage.name: self._best_at(steady * arrival_per_s * stage.visits * stage.row_s) for stage in self.stages
            }
            shorter = self.steady_batch_s(arrival_per_s, tried)
            if not shorter < steady:
                return best
            best, steady = tried, shorter

    def _best_at(self, work_s: float) -> int:
        """Return the whole k in 1..slots that minimises b k + work / k."""
        ideal = math.sqrt(work_s / self.replica_s)
        near = {min(self.slots, max(1, k)) for k in (math.floor(ideal), math.ceil(ideal))}
        return min(sorted(near), key=lambda k: self.replica_s * k + work_s / k)
