"""Executors that are gone, or back, for good: Spark replaces what is lost, but not where there is nothing to be had."""

from __future__ import annotations

from penstock.engines.spark.executors.contract import Negotiator

LOOK_S = 5.0  # apart: a look is several calls to the JVM


class ExecutorDrift:
    """Tells what is there from what is only on its way."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._looked_s = float("-inf")
        self._other: tuple[int, float] | None = None  # slots that are there and not planned, since when
        self._told = False  # that there are none

    def slots(self, executors: Negotiator, planned: int, now_s: float) -> int | None:
        """Those that are there, where others than planned have been for longer than executors are waited for.

        With none there is no going on: 0 is said once, until some come. More than were asked for come where they were
        on their way already when fewer were: masters take nothing back.
        """
        if now_s < self._looked_s + LOOK_S:
            return None
        self._looked_s = now_s
        standing, each = executors.standing(), executors.slots_each
        there = len(standing.observed) * each
        if abs(there - planned) < each:
            self._other, self._told = None, False
            return None
        if self._other is None or self._other[0] != there:
            self._other, self._told = (there, now_s), False
        if now_s - self._other[1] < self.patience_s or self._told:
            return None
        self._told = there == 0
        return there
