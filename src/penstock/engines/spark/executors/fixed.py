"""The one executor of `local[N]`: the driver itself, whose slots are fixed by its master."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.errors import PlanError
from penstock.engines.spark.executors.contract import ExecutorsError, Standing

_WAY_OUT = "run it on a cluster to change executors ('penstock cluster start', then 'penstock run --cluster ...')"


@dataclass(frozen=True, slots=True)
class FixedExecutors:
    slots_each: int

    def standing(self) -> Standing:
        return Standing(planned=1, requested=1, observed=("driver",))

    def check(self, slots: int) -> None:
        if slots != self.slots_each:
            raise PlanError(
                f"the plan has {slots} slots but this run has {self.slots_each}, fixed by its master; "
                f'set "slots": {self.slots_each}, or stop it and run it again with another --master'
            )

    def ask(self, count: int) -> None:
        if count != 1:
            raise ExecutorsError(f"{count} executors, but a local master is one process and stays one; {_WAY_OUT}")

    def release(self, ids: Sequence[str]) -> None:
        if ids:
            raise ExecutorsError(f"the driver's own process cannot be released; {_WAY_OUT}")

    def begin(self, slots: int | None) -> int:
        return self.slots_each

    def settle(self, slots: int) -> int:
        self.check(slots)
        return slots
