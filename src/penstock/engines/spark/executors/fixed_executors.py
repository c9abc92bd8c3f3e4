"""The single executor of `local[N]`: the driver itself, whose slots are fixed by its master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.resource import ResourceProfile

from penstock.dataflow.errors import PlanError
from penstock.engines.spark.executors.negotiator import ExecutorCounts, ExecutorsError
from penstock.plan import ExecutorGroup

_USE_CLUSTER = (
    "Run the dataflow on a cluster to change executors ('penstock cluster start', then 'penstock run --cluster ...')."
)


@dataclass(frozen=True, slots=True)
class FixedExecutors:
    slots_per_executor: int

    def counts(self) -> ExecutorCounts:
        return ExecutorCounts(planned=1, requested=1, registered=("driver",))

    def check(self, slots: int) -> None:
        if slots != self.slots_per_executor:
            raise PlanError(
                f"The plan has {slots} slots, but this run has {self.slots_per_executor}, which its master fixes. "
                f'Set "slots": {self.slots_per_executor}, or restart the run with another master.'
            )

    def check_groups(self, groups: Mapping[str, ExecutorGroup]) -> None:
        if groups:
            raise PlanError(
                f"The plan has groups of executors ({', '.join(groups)}), but a local master is a single process. "
                f"{_USE_CLUSTER}"
            )

    def profile(self, group: str) -> ResourceProfile:
        raise ExecutorsError(f"A local master has no executors for group '{group}'. {_USE_CLUSTER}")

    def request(self, count: int, groups: Mapping[str, int] | None = None) -> None:
        if count != 1:
            raise ExecutorsError(
                f"{count} executors were requested, but a local master is a single process. {_USE_CLUSTER}"
            )

    def release(self, ids: Sequence[str]) -> None:
        if ids:
            raise ExecutorsError(f"The process of the driver cannot be released. {_USE_CLUSTER}")

    @property
    def rejections(self) -> int:
        return 0

    def admit_new(self) -> str | None:
        return None

    def start(self, slots: int | None, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        self.check_groups(groups or {})
        return self.slots_per_executor

    def resize(self, slots: int, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        self.check_groups(groups or {})
        self.check(slots)
        return slots
