"""The executors of a simulated cluster: start-up, removal and random failures."""

from __future__ import annotations

import math

import numpy as np

from penstock.engines.simulated.behaviour import SimulatedCluster
from penstock.plan import Plan

_MIN_OUTAGE_S = 1e-6  # a failed executor is unavailable at least this long, so that its tasks start again


def executors_of(plan: Plan, cluster: SimulatedCluster) -> int:
    """Return the number of executors that a plan needs.

    >>> executors_of(Plan(dataflow="f", slots=9), SimulatedCluster(slots_per_executor=4))
    3
    """
    return math.ceil(plan.slots / cluster.slots_per_executor)


class SimulatedExecutors:
    """The executors of a run. The times to failure are exponential."""

    def __init__(self, cluster: SimulatedCluster, *, seed: int) -> None:
        self._cluster = cluster
        self._random = np.random.default_rng([seed, 2])
        self._ready_s: list[float] = []  # by executor: time at which it is ready for work
        self._fails_s: list[float] = []  # by executor: time of its next failure

    def scale(self, count: int, now_s: float, *, start_up_s: float) -> None:
        """Add executors that are ready after `start_up_s`, or remove the newest executors."""
        del self._ready_s[count:], self._fails_s[count:]
        while len(self._ready_s) < count:
            self._ready_s.append(now_s + start_up_s)
            self._fails_s.append(self._next_failure_s(self._ready_s[-1]))

    def _next_failure_s(self, from_s: float) -> float:
        mean_s = self._cluster.mean_time_to_failure_s
        return math.inf if mean_s is None else from_s + float(self._random.exponential(mean_s))

    def __len__(self) -> int:
        return len(self._ready_s)

    def unavailable(self, now_s: float) -> frozenset[int]:
        return frozenset(i for i, ready_s in enumerate(self._ready_s) if ready_s > now_s)

    def next_change_s(self, now_s: float) -> float:
        """Return the time at which the next executor becomes ready or fails; infinity if there is none."""
        return min([*(ready_s for ready_s in self._ready_s if ready_s > now_s), *self._fails_s], default=math.inf)

    def fail_due(self, now_s: float) -> None:
        """Let the executors fail whose time to failure has passed."""
        for i, fails_s in enumerate(self._fails_s):
            if fails_s <= now_s:
                self.fail(i, now_s)

    def fail(self, executor: int, now_s: float) -> None:
        """Let an executor fail. A replacement with the same number starts up."""
        self._ready_s[executor] = now_s + max(_MIN_OUTAGE_S, self._cluster.start_up_s)
        self._fails_s[executor] = self._next_failure_s(self._ready_s[executor])
