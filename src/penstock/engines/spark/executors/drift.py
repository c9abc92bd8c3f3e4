"""Detects that the number of executors has differed from the plan for a long time.

Spark replaces lost executors, but not if the cluster manager has no resources left.
"""

from __future__ import annotations

from penstock.engines.spark.executors.negotiator import Negotiator

CHECK_INTERVAL_S = 5.0  # a check takes several calls to the JVM


class ExecutorDrift:
    """Distinguishes a permanent change of the number of executors from executors that are about to be replaced."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._checked_s = float("-inf")
        self._differing: tuple[int, float] | None = None  # slots that differ from the plan, and since when
        self._reported_none = False

    def lasting_slots(self, executors: Negotiator, planned_slots: int, now_s: float) -> int | None:
        """Return the actual slots once they have differed from the plan for `patience_s`, else None.

        A run without executors cannot continue: 0 is returned only once until executors register again. There may also
        be more slots than requested, because a master does not cancel executors that were already starting.
        """
        if now_s < self._checked_s + CHECK_INTERVAL_S:
            return None
        self._checked_s = now_s
        slots_per_executor = executors.slots_per_executor
        slots = len(executors.counts().registered) * slots_per_executor
        if abs(slots - planned_slots) < slots_per_executor:
            self._differing, self._reported_none = None, False
            return None
        if self._differing is None or self._differing[0] != slots:
            self._differing, self._reported_none = (slots, now_s), False
        if now_s - self._differing[1] < self.patience_s or self._reported_none:
            return None
        self._reported_none = slots == 0
        return slots
