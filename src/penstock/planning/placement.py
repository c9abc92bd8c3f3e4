"""The common value of all mappings: every thread of every operator on a slot of a VM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError
from penstock.planning.vms import VmCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where threads run. `slot_of["parse"][2]` is the slot, numbered through the cluster, of the third parse thread.

    `cpu_pooled`: the mapping counted on threads of a VM using any core of it, whatever their slot (as RSM does).
    """

    method: str
    cluster: VmCluster
    slot_of: Mapping[str, tuple[int, ...]]
    cpu_pooled: bool = False

    def groups(self) -> dict[str, dict[int, int]]:
        """Operator -> slot -> how many of its threads run there."""
        return {operator: dict(Counter(slots)) for operator, slots in self.slot_of.items()}

    def used_slots(self) -> set[int]:
        return {slot for slots in self.slot_of.values() for slot in slots}

    def mixed_slots(self) -> set[int]:
        """Slots that run threads of more than one operator."""
        hosts = Counter(slot for slots in self.slot_of.values() for slot in set(slots))
        return {slot for slot, operators in hosts.items() if operators > 1}


class PlacementError(PenstockError):
    """A mapping found no room: which operator, what it lacked, and how many more slots would do."""

    def __init__(self, *, method: str, operator: str, threads: int, lacked: str, slots: int, more_slots: int) -> None:
        self.operator = operator
        self.lacked = lacked
        self.more_slots = more_slots
        noun = "1 thread" if threads == 1 else f"{threads} threads"
        super().__init__(
            f"{method} cannot place {noun} of operator '{operator}' on {slots} slots: {lacked}; "
            f"{more_slots} more slot{'s' if more_slots != 1 else ''} would do"
        )
