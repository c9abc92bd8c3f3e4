"""The executors of one plan change: obtained before its queries change, and released after the commit.

The old plan keeps all executors that it needs until the new plan is in force, and gets them back if the change fails.
"""

from __future__ import annotations

import contextlib

from penstock.engines.spark.executors import ExecutorsError, Negotiator
from penstock.plan import ExecutorGroup, Plan


class ExecutorChange:
    def __init__(self, executors: Negotiator, before: Plan, after: Plan) -> None:
        self._executors = executors
        self._before, self._after = before, after
        self._groups = _larger_groups(before, after)
        self._shared = max(_shared_slots(before), _shared_slots(after))
        self._grows = self._shared > _shared_slots(before) or self._groups != before.groups

    def obtain(self) -> Plan:
        """Obtain the executors that the new plan needs in addition; return the plan with the available slots.

        Raises ExecutorsError if there are none, or if a group is not complete; the old plan then has its executors.
        """
        if not self._grows:
            return self._after
        if not self._groups:
            return self._after.replace(slots=self._executors.resize(self._shared))
        shared = self._obtain_groups()
        if _shared_slots(self._after) > _shared_slots(self._before):
            return self._after.replace(slots=shared + self._after.group_slots)
        return self._after

    def release(self) -> int | None:
        """Release the executors that only the old plan needed; return the available slots if it changes them."""
        if self._shared == _shared_slots(self._after) and self._groups == self._after.groups:
            return None
        try:
            return self._executors.resize(self._after.slots, self._after.groups)
        except ExecutorsError:
            if not self._after.groups:
                raise
            return None  # a group lost an executor meanwhile, which Spark replaces

    def restore(self) -> None:
        """Give the old plan its executors back after a failed change."""
        if self._grows:
            self._executors.resize(self._before.slots, self._before.groups)

    def _obtain_groups(self) -> int:
        """Obtain the executors of both plans; return the available slots without a group."""
        in_groups = sum(group.slots for group in self._groups.values())
        try:
            try:
                return self._executors.resize(self._shared + in_groups, self._groups) - in_groups
            except ExecutorsError:
                fewer = _shared_slots(self._after)
                if fewer >= self._shared:
                    raise
                # The workers may suffice if the old plan continues with the shared executors of the new one.
                return self._executors.resize(fewer + in_groups, self._groups) - in_groups
        except BaseException:
            with contextlib.suppress(ExecutorsError):  # the error of the change says what is missing
                self.restore()
            raise


def _shared_slots(plan: Plan) -> int:
    return plan.slots - plan.group_slots


def _larger_groups(before: Plan, after: Plan) -> dict[str, ExecutorGroup]:
    """Return the groups of both plans, with the larger one of two with the same name."""
    groups = dict(before.groups)
    for name, group in after.groups.items():
        if name not in groups or groups[name].slots < group.slots:
            groups[name] = group
    return groups
