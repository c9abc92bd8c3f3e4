"""Executors: which of them take work, and when that changes. Times to failure are exponential."""

from __future__ import annotations

import heapq
import math

import numpy as np

from penstock.engines.simulated.behaviour import Cluster

_LEAST_S = 1e-6  # that one is away: what it had at hand is done again


class Executors:
    def __init__(self, cluster: Cluster, *, seed: int) -> None:
        self._cluster = cluster
        self._chance = np.random.default_rng([seed, 2])
        self._ready_s: list[float] = []  # by executor: when it takes work, or has since
        self._fails_s: list[float] = []
        self.failures = 0

    def scale(self, count: int, now_s: float, *, at_once: bool = False) -> None:
        """New ones start up; the last ones go first."""
        del self._ready_s[count:], self._fails_s[count:]
        while len(self._ready_s) < count:
            self._ready_s.append(now_s if at_once else now_s + self._cluster.start_up_s)
            self._fails_s.append(self._next_failure(self._ready_s[-1]))

    def _next_failure(self, from_s: float) -> float:
        mean = self._cluster.mean_time_to_failure_s
        return math.inf if mean is None else from_s + float(self._chance.exponential(mean))

    def __len__(self) -> int:
        return len(self._ready_s)

    def not_ready(self, now_s: float) -> frozenset[int]:
        return frozenset(i for i, ready in enumerate(self._ready_s) if ready > now_s)

    def next_change_s(self, now_s: float) -> float:
        """When one comes up or goes down next."""
        coming = [ready for ready in self._ready_s if ready > now_s]
        return min(heapq.nsmallest(1, coming) + heapq.nsmallest(1, self._fails_s), default=math.inf)

    def pass_time(self, now_s: float) -> None:
        for i, fails in enumerate(self._fails_s):
            if fails <= now_s:
                self.fail(i, now_s)

    def fail(self, executor: int, now_s: float) -> None:
        """It is lost, and another one starts up in its place."""
        self.failures += 1
        self._ready_s[executor] = now_s + max(_LEAST_S, self._cluster.start_up_s)
        self._fails_s[executor] = self._next_failure(self._ready_s[executor])
