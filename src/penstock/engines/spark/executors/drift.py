"""Detects that the number of executors has differed from the plan for a long time.

Spark replaces lost executors, but not if the cluster manager has no resources left.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engines.spark.executors.negotiator import Negotiator
from penstock.plan import ExecutorGroup

CHECK_INTERVAL_S = 5.0  # a check takes several calls to the JVM


class ExecutorDrift:
    """Distinguishes a permanent change of the number of executors from executors that are about to be replaced."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._checked_s = float("-inf")
        self._differing: tuple[int, float] | None = None  # slots that differ from the plan, and since when
        self._reported_none = False

    def lasting_slots(self, executors: Negotiator, planned_slots: int, now_s: float) -> int | None:
        """Return the actual slots outside of groups once they have differed from the plan for `patience_s`, else None.

        A run without executors cannot continue: 0 is returned only once until executors register again. There may also
        be more slots than requested, because a master does not cancel executors that were already starting.
        """
        if now_s < self._checked_s + CHECK_INTERVAL_S:
            return None
        self._checked_s = now_s
        slots_per_executor = executors.slots_per_executor
        slots = len(executors.counts().shared) * slots_per_executor
        if abs(slots - planned_slots) < slots_per_executor:
            self._differing, self._reported_none = None, False
            return None
        if self._differing is None or self._differing[0] != slots:
            self._differing, self._reported_none = (slots, now_s), False
        if now_s - self._differing[1] < self.patience_s or self._reported_none:
            return None
        self._reported_none = slots == 0
        return slots


class GroupDrift:
    """Detects groups that have lacked executors, or have had too many of them, for `patience_s`.

    The plan is not adapted to a shortage: Spark starts the missing executors as soon as a worker is free.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._checked_s = float("-inf")
        self._since_s: dict[str | None, float] = {}  # group, or None for a surplus -> since when
        self._reported: set[str] = set()

    def check(self, executors: Negotiator, groups: Mapping[str, ExecutorGroup], now_s: float) -> tuple[list[str], bool]:
        """Return one sentence for each shortage that was not reported yet, and whether there is a surplus."""
        if now_s < self._checked_s + CHECK_INTERVAL_S:
            return [], False
        self._checked_s = now_s
        counts = executors.counts()
        shortages = []
        for name, group in groups.items():
            count, planned = len(counts.groups.get(name, ())), group.slots // executors.slots_per_executor
            if not self._lasts(name, count < planned, now_s):
                self._reported.discard(name)
            elif name not in self._reported:
                self._reported.add(name)
                consequence = "wait" if count == 0 else "run on these only"
                shortages.append(
                    f"Group '{name}' has {count} of its {planned} executors, and the tasks of "
                    f"{', '.join(group.operators)} {consequence}."
                )
        return shortages, self._lasts(None, counts.surplus > 0, now_s)

    def _lasts(self, name: str | None, is_so: bool, now_s: float) -> bool:
        if not is_so:
            self._since_s.pop(name, None)
        return is_so and now_s - self._since_s.setdefault(name, now_s) >= self.patience_s
