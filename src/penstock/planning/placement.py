"""The result of every mapping: each thread of each operator on a slot of a VM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError
from penstock.planning.vms import VmCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The slot of each thread.

    `slot_of["parse"][2]` is the slot of the third thread of operator `parse`; slots are numbered across the cluster.
    `cpu_pooled`: the mapping assumes that threads use all cores of their VM, regardless of their slot (as RSM does).
    """

    method: str
    cluster: VmCluster
    slot_of: Mapping[str, tuple[int, ...]]
    cpu_pooled: bool = False

    def groups(self) -> dict[str, dict[int, int]]:
        """Return the number of threads of each operator on each slot: operator -> slot -> threads."""
        return {operator: dict(Counter(slots)) for operator, slots in self.slot_of.items()}


class PlacementError(PenstockError):
    """A mapping found no slot for an operator. The error names the missing resource and the additional slots needed."""

    def __init__(self, *, method: str, operator: str, threads: int, lacked: str, slots: int, more_slots: int) -> None:
        self.operator = operator
        self.lacked = lacked
        self.more_slots = more_slots
        noun = "1 thread" if threads == 1 else f"{threads} threads"
        super().__init__(
            f"{method} cannot place {noun} of operator '{operator}' on {slots} slots: {lacked}. "
            f"Add {more_slots} slot{'s' if more_slots != 1 else ''}."
        )
