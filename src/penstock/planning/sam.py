"""Slot-aware mapping (SAM): a full bundle of threads gets a slot of its own; rests share slots by best fit.

Source: Shukla and Simmhan, JPDC 2018, algorithm SAM. Each sweep places one bundle of each operator, in breadth-first
order. A full bundle takes an empty slot: on the VM used last if it has one, otherwise on the next VM that has one. A
rest goes to the shared slot with the least free CPU% + memory% that can hold it, or to an empty slot if none can.
Consequently, each operator has threads on at most one shared slot.

The paper does not define a rest that needs as many threads as a full bundle at less than the full rate. Here it stays a
rest. Otherwise each small operator whose best count is one thread would occupy a whole slot, unlike MBA's charge.

The algorithm places bundles instead of threads. Shared slots are kept sorted by free CPU% + memory%, and the search for
the best fit starts at the smallest sum that can hold the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from penstock.models.curve import Curve
from penstock.planning.allocation import SLACK, SLOT, Allocation, Bundle, OperatorAllocation, curve_of, single_thread
from penstock.planning.placement import Placement, PlacementError
from penstock.planning.vms import VmCluster


def sam(allocation: Allocation, cluster: VmCluster, curves: Mapping[str, Curve]) -> Placement:
    """Place every thread. If one does not fit, raise a PlacementError with the slots that have to be added."""
    sizes = [_bundles(operator, curves) for operator in allocation.operators]
    threads: list[list[int]] = [[] for _ in sizes]
    # Empty slots are taken in order, so all VMs before the one used last are full.
    empty = iter(range(cluster.slots))
    shared = _SharedSlots()
    sweep, pending = 0, list(range(len(sizes)))
    while pending:
        remaining = []  # operators with bundles left after this sweep
        for number in pending:
            full, bundle_threads, rest = sizes[number]
            if sweep < full:
                slot, count, lacked = (
                    next(empty, None),
                    bundle_threads,
                    "a full bundle needs an empty slot and none is left",
                )
                if sweep + 1 < full or rest is not None:
                    remaining.append(number)
            else:
                assert rest is not None  # an operator has at least one thread
                slot, count = shared.best_fit(rest), rest.threads
                lacked = f"no slot has {rest.cpu:.2f}% CPU and {rest.memory:.2f}% memory free"
                if slot is None and (slot := next(empty, None)) is not None:
                    shared.open(slot, rest)
            if slot is None:
                raise PlacementError(
                    method="sam",
                    operator=allocation.operators[number].operator,
                    threads=count,
                    lacked=lacked,
                    slots=cluster.slots,
                    more_slots=slots_needed(allocation, curves) - cluster.slots,
                )
            threads[number].extend([slot] * count)
        sweep, pending = sweep + 1, remaining
    names = [operator.operator for operator in allocation.operators]
    return Placement(
        method="sam",
        cluster=cluster,
        slot_of={name: tuple(slots) for name, slots in zip(names, threads, strict=True)},
    )


def slots_needed(allocation: Allocation, curves: Mapping[str, Curve]) -> int:
    """Return the fewest slots on which `sam` succeeds.

    Full bundles take one slot each. Rests are placed in the same order on the same shared slots on any cluster.
    """
    sizes = [_bundles(operator, curves) for operator in allocation.operators]
    shared = _SharedSlots()
    # Rests in the order of the sweeps: after the full bundles of their operator.
    rests = sorted((full, number, rest) for number, (full, _, rest) in enumerate(sizes) if rest is not None)
    opened = 0
    for _, _, rest in rests:
        if shared.best_fit(rest) is None:
            shared.open(opened, rest)
            opened += 1
    return opened + sum(full for full, _, _ in sizes)


def _bundles(operator: OperatorAllocation, curves: Mapping[str, Curve]) -> tuple[int, int, Bundle | None]:
    """Return (full bundles, threads per bundle, rest). Single threads of LSA are bundled according to the curve."""
    if operator.exclusive:
        return operator.bundles, operator.bundle.threads, operator.rest
    curve = curve_of(operator.operator, curves)
    full, left = divmod(operator.bundles * operator.bundle.threads, curve.best_threads)
    last = operator.rest.threads if operator.rest else 0
    if left + last == 0:
        return full, curve.best_threads, None
    if left == 0 and operator.rest:
        return full, curve.best_threads, single_thread(curve, operator.rest.rows_per_s)
    point = curve.at(left + last)
    rest = Bundle(threads=left + last, rows_per_s=point.rows_per_s, cpu=point.cpu, memory=point.memory)
    return full, curve.best_threads, rest


class _SharedSlots:
    """Slots that hold rests, sorted by free CPU% + memory%, then by the order in which they were opened."""

    def __init__(self) -> None:
        self._slots: list[int] = []  # in the order in which they were opened
        self._open: list[
            tuple[float, int, float, float]
        ] = []  # (free CPU + memory, index into `_slots`, free CPU, free memory)

    def best_fit(self, rest: Bundle) -> int | None:
        """Place the rest on an open slot and return the slot; None if no open slot can hold it."""
        position = bisect_left(self._open, (rest.cpu + rest.memory - 4 * SLACK,))
        while position < len(self._open):
            _, index, cpu, memory = self._open[position]
            if rest.cpu <= cpu + SLACK and rest.memory <= memory + SLACK:
                del self._open[position]
                self._add(index, cpu - rest.cpu, memory - rest.memory)
                return self._slots[index]
            position += 1
        return None

    def open(self, slot: int, rest: Bundle) -> None:
        """Place the rest on an empty slot, which becomes shared."""
        self._slots.append(slot)
        self._add(len(self._slots) - 1, SLOT - rest.cpu, SLOT - rest.memory)

    def _add(self, index: int, cpu: float, memory: float) -> None:
        insort(self._open, (cpu + memory, index, cpu, memory))
