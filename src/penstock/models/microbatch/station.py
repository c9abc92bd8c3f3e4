"""The micro-batch station: one query whose stages all have k replicas.

    D(n) = a + n c / min(k, slots) + b k            a batch of n rows
    D*   = A / (1 - lambda C),  A = a + b k,  C = c / min(k, slots)     steady state at lambda rows/s: n = lambda D*

a: seconds per batch, independent of its rows; c: seconds of work per row, over all stages and visits; b: seconds per
replica (task launch, state partition). D* is exact for a constant inflow and batches without pauses. A row arrives
uniformly during the batch before its own and leaves at the end of its own: T is uniform on [D*, 2 D*], E[T] = 1.5 D*.

Up to k = slots, D* = b k + (a + b x) (1 + x / (k - x)) with x = lambda c. It is convex in k with its minimum at
k = x + sqrt(x (a + b x) / b). Replicas beyond `slots` only add b, so the optimal k is finite.

A stage lasts as long as its slowest task. If the work per row varies, the sum over the n/k rows of a task is roughly
normal, and the largest of k such sums is z_k standard deviations above the mean:

    D(n) = a + n c / k + b k + z_k g sqrt(n / k),      g = sum over stages of c_s sqrt(SCV_s v_s)
    sqrt(D*) = (q + sqrt(q^2 + 4 (1 - rho) A)) / (2 (1 - rho)),      q = z_k g sqrt(lambda / k), rho = lambda C

z_k = E[max of k standard normals], by Blom's formula: Phi^-1((k - 0.375) / (k + 0.25)), within 2% from k = 2 on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counting
from statistics import NormalDist

from penstock.models.queueing.errors import (
    UnstableError,
    checked_load,
    count,
    counted,
    distinguishable,
    not_negative,
    positive,
    probability,
)
from penstock.models.queueing.mmk import least_stable_servers
from penstock.models.queueing.station import LatencyMoments


@functools.cache
def expected_maximum(tasks: int) -> float:
    """Return z_k, the expected maximum of k standard normal variables.

    >>> [round(expected_maximum(k), 2) for k in (1, 2, 10)]  # exact: 0, 0.564, 1.539
    [0.0, 0.59, 1.55]
    """
    return NormalDist().inv_cdf((tasks - 0.375) / (tasks + 0.25)) if tasks > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A micro-batch station.

    >>> query = MicroBatch(arrival_per_s=2000.0, batch_s=0.1, row_s=0.001, replica_s=0.02, slots=16)
    >>> query.least_stable(), query.best_replicas(), round(query.steady_batch_s(5), 3)
    (3, 6, 0.333)
    """

    arrival_per_s: float
    batch_s: float  # a
    row_s: float  # c
    replica_s: float  # b
    slots: int | None = None  # tasks that run at the same time; None: all replicas
    spread_s: float = 0.0  # g

    def __post_init__(self) -> None:
        not_negative("the arrival rate (rows/s)", self.arrival_per_s)
        not_negative("the fixed time of a batch (s)", self.batch_s)
        not_negative("the work of a row (s)", self.row_s)
        not_negative("the time per replica and batch (s)", self.replica_s)
        checked_load(self.arrival_per_s * self.row_s)
        not_negative("the spread of a row's work (s)", self.spread_s)
        positive("the time of an empty batch with one replica (s)", self.batch_s + self.replica_s)
        if self.slots is not None:
            count("the number of slots", self.slots)

    def at_rate(self, arrival_per_s: float) -> MicroBatch:
        return MicroBatch(
            arrival_per_s=arrival_per_s,
            batch_s=self.batch_s,
            row_s=self.row_s,
            replica_s=self.replica_s,
            slots=self.slots,
            spread_s=self.spread_s,
        )

    def _at_once(self, replicas: int) -> int:
        return replicas if self.slots is None else min(replicas, self.slots)

    def batch_time_s(self, rows: float, replicas: int) -> float:
        """Return D(n)."""
        return self.batch_s + rows * self.row_s / self._at_once(replicas) + self.replica_s * replicas

    def least_stable(self) -> int | None:
        replicas = least_stable_servers(self.arrival_per_s * self.row_s)
        return None if self._at_once(replicas) < replicas else replicas

    def capacity_per_s(self, servers: int) -> float:
        return self._at_once(servers) / self.row_s if self.row_s else math.inf

    def steady_batch_s(self, replicas: int) -> float:
        """Return D*; raise an UnstableError if the replicas do not sustain the arrival rate."""
        keeps_up = least_stable_servers(self.arrival_per_s * self.row_s)
        if self._at_once(count("the number of replicas", replicas)) < keeps_up:
            fewest = self.least_stable()
            needs = f"it needs at least {fewest}" if fewest else f"{self.slots} slots are too few for any number"
            arriving, processed = distinguishable(self.arrival_per_s, self.capacity_per_s(replicas))
            verb = "processes" if replicas == 1 else "process"
            raise UnstableError(
                f"A query receives {arriving} rows/s but {counted(replicas, 'replica')} {verb} {processed}; {needs}."
            )
        return self._steady_s(replicas)

    def _steady_s(self, replicas: int) -> float:
        at_once = self._at_once(replicas)
        fixed, free = self.batch_s + self.replica_s * replicas, 1.0 - self.arrival_per_s * self.row_s / at_once
        if self.spread_s == 0.0:
            return fixed / free
        q = expected_maximum(at_once) * self.spread_s * math.sqrt(self.arrival_per_s / at_once)
        return ((q + math.sqrt(q * q + 4.0 * free * fixed)) / (2.0 * free)) ** 2

    def best_replicas(self) -> int | None:
        """Return the k with the lowest latency; None if no k is stable.

        If replicas cost no time (b = 0), all slots are optimal. Without a number of slots this raises an UnstableError.

        >>> MicroBatch(arrival_per_s=10.0, batch_s=1.0, row_s=0.01, replica_s=0.0, slots=8).best_replicas()
        8
        """
        fewest = self.least_stable()
        if fewest is None:
            return None
        x, b = self.arrival_per_s * self.row_s, self.replica_s
        if x == 0.0:
            return 1
        if b == 0.0:
            if self.slots is None:
                raise UnstableError(
                    "Replicas without cost on unlimited slots have no optimal number. Give the number of slots."
                )
            return self.slots
        if self.spread_s > 0.0:  # no closed form: increase k while the latency drops
            drops = self.drops_s(fewest)
            return next(k for k in counting(fewest) if k == self.slots or next(drops) <= 0.0)
        ideal = x + math.sqrt(x * (self.batch_s + b * x) / b)
        max_replicas = self.slots if self.slots is not None else math.ceil(ideal)
        near = {min(max_replicas, max(fewest, k)) for k in (math.floor(ideal), math.ceil(ideal))}
        return min(near, key=self.steady_batch_s)

    def moments(self, servers: int) -> Iterator[LatencyMoments]:
        self.steady_batch_s(servers)  # raises if unstable; all larger numbers are stable
        for replicas in counting(servers):
            steady = self._steady_s(replicas)
            variance = steady**2 / 12.0
            yield LatencyMoments(1.5 * steady, variance, variance)

    def drops_s(self, servers: int) -> Iterator[float]:
        steady = self.steady_batch_s(servers)
        fixed, per_replica, load = self.batch_s, self.replica_s, self.arrival_per_s * self.row_s
        plain = self.slots is None and self.spread_s == 0.0  # the frequent case, computed without calls
        for replicas in counting(servers + 1):
            shorter = (fixed + per_replica * replicas) / (1.0 - load / replicas) if plain else self._steady_s(replicas)
            yield 1.5 * (steady - shorter)
            steady = shorter

    def floor_s(self) -> float:
        """Return the latency of empty batches with one replica, a lower bound for any load and any replicas."""
        return 1.5 * (self.batch_s + self.replica_s)

    def mean_s(self, servers: int) -> float:
        return 1.5 * self.steady_batch_s(servers)

    def variance_s2(self, servers: int) -> float:
        return self.steady_batch_s(servers) ** 2 / 12.0

    def quantile_s(self, servers: int, quantile: float) -> float:
        return (1.0 + probability("a quantile", quantile)) * self.steady_batch_s(servers)

    def miss_probability(self, servers: int, deadline_s: float) -> float:
        return min(1.0, max(0.0, 2.0 - deadline_s / self.steady_batch_s(servers)))
