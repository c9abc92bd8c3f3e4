"""Tasks that share the cores of a platform: how fast the operators of a plan are, and which rate they sustain.

Tasks are placed on slots in turn, and a slot has one core. Tasks need the core for a part of their time only; they wait
for the rest, for example for a service. Tasks of a slot share its core equally.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_STEPS = 60  # steps of a bisection, more than the digits of a float
_RATE_STEPS = 12
_HIGHEST_LOAD = 0.999


def core_stretch(shares: Sequence[float]) -> float:
    """Return the factor by which work on a core takes longer when tasks share the core and use it completely.

    A task that needs the core for the share c of its time uses c / (1 - c + c y) of it if its work takes y times as
    long.

    >>> core_stretch([1.0, 1.0, 1.0]), round(core_stretch([0.5, 0.5]), 6), round(core_stretch([0.5] * 3), 6)
    (3.0, 1.0, 2.0)
    """
    low, high = 1.0, max(1.0, float(len(shares)))
    if all(share == 1.0 for share in shares):
        return high
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        used = sum(share / (1.0 - share + share * middle) for share in shares)
        low, high = (middle, high) if used > 1.0 else (low, middle)
    return high


def stretches(tasks: Mapping[str, int], core_shares: Mapping[str, float], slots: int) -> dict[str, list[float]]:
    """Return for each task of each operator how much longer its work on the core takes.

    >>> stretches({"parse": 2, "count": 1}, {"parse": 1.0, "count": 1.0}, slots=2)
    {'parse': [2.0, 1.0], 'count': [2.0]}
    """
    order = [name for name, count in tasks.items() for _ in range(count)]
    known: dict[tuple[float, ...], float] = {}
    of_slot = []
    for slot in range(min(slots, len(order))):
        shares = tuple(core_shares[name] for name in order[slot::slots])
        if shares not in known:
            known[shares] = core_stretch(shares)
        of_slot.append(known[shares])
    result: dict[str, list[float]] = {name: [] for name in tasks}
    for number, name in enumerate(order):
        result[name].append(of_slot[number % slots])
    return result


def speed(core_share: float, stretched: Sequence[float]) -> float:
    """Return the speed of tasks together, in tasks that have a core of their own."""
    return sum(1.0 / (1.0 - core_share + core_share * stretch) for stretch in stretched)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCores:
    """Operators on a platform. All times are those of a task that has a core of its own."""

    seconds: Mapping[str, float]  # operator that works -> time per row of the sources
    rows: Mapping[str, float]  # operator -> rows per row of the sources
    inputs: Mapping[str, Collection[str]]  # by operator: the operators that it reads
    core_shares: Mapping[str, float]  # by operator: share of its time in which a task needs a core
    slots: int
    constant: Collection[str] = ()  # operators whose input does not grow with that of the dataflow

    def capacity_per_s(self, tasks: Mapping[str, int]) -> float:
        """Return the rows/s of the sources that the slowest operator can process."""
        return min(self._capacities(tasks).values(), default=math.inf)

    def slowest(self, tasks: Mapping[str, int]) -> list[str]:
        """Return the operators, the slowest one first."""
        capacities = self._capacities(tasks)
        return sorted(capacities, key=lambda name: capacities[name])

    def rows_per_s(self, tasks: Mapping[str, int], latency_s: float) -> float:
        """Return the highest rate at which the mean latency along the longest path is at most `latency_s`.

        Each operator is an M/M/k queue; its wait is approximated as in Sakasegawa (1977). More tasks per slot take
        longer for a row, so many tasks are not always better.
        """
        speeds = self._speeds(tasks)
        capacity = min((speeds[name] / self.seconds[name] for name in self._growing()), default=math.inf)
        low, high = 0.0, capacity * _HIGHEST_LOAD
        if self._latency_s(tasks, speeds, high) <= latency_s:
            return high
        for _ in range(_RATE_STEPS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self._latency_s(tasks, speeds, middle) <= latency_s else (low, middle)
        return low

    def _growing(self) -> list[str]:
        return [name for name in self.seconds if name not in self.constant]

    def _speeds(self, tasks: Mapping[str, int]) -> dict[str, float]:
        working = {name: tasks[name] for name in self.seconds}
        stretched = stretches(working, self.core_shares, self.slots)
        return {name: speed(self.core_shares[name], stretched[name]) for name in working}

    def _capacities(self, tasks: Mapping[str, int]) -> dict[str, float]:
        speeds = self._speeds(tasks)
        return {name: speeds[name] / self.seconds[name] for name in self._growing()}

    def _latency_s(self, tasks: Mapping[str, int], speeds: Mapping[str, float], rows_per_s: float) -> float:
        until: dict[str, float] = {}
        for name in self.inputs:
            before = max((until.get(other, 0.0) for other in self.inputs[name]), default=0.0)
            until[name] = before
            if name in self.seconds and name not in self.constant and self.rows[name] > 0:
                service_s = self.seconds[name] / self.rows[name] * tasks[name] / speeds[name]
                load = min(_HIGHEST_LOAD, rows_per_s * self.seconds[name] / speeds[name])
                waiting = load ** (math.sqrt(2.0 * (tasks[name] + 1)) - 1.0) / (1.0 - load) / tasks[name]
                until[name] = before + service_s * (1.0 + waiting)
        return max(until.values(), default=0.0)
