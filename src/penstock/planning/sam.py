"""Slot-aware mapping: a full bundle of an operator's threads takes a slot alone; rests share slots by best fit.

Source: Shukla and Simmhan, JPDC 2018, algorithm SAM. Sweeps over the operators in breadth-first order, one bundle of
each a sweep. A full bundle takes an empty slot, on the VM used last if that has one, else on the next VM that has. A
rest goes to the slot with the least free CPU% + memory% that still holds it; empty slots are the last choice, again
near the VM used last. So at most one slot an operator is shared.

What the print leaves open: a rest that needs as many threads as a full bundle, but for less than the full rate, stays a
rest (with one thread as the best count, every small operator would else block a whole slot, against what MBA charged).

Cost: bundles, not threads, are placed; best fits come from a list of open slots sorted by free CPU% + memory% and
searched from the least sum that can hold the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from penstock.models.curve import Curve
from penstock.planning.allocation import SLACK, SLOT, Allocation, Bundle, OperatorAllocation, curve_of, scaled
from penstock.planning.placement import Placement, PlacementError
from penstock.planning.vms import VmCluster


def sam(allocation: Allocation, cluster: VmCluster, curves: Mapping[str, Curve]) -> Placement:
    """Places every thread, or fails naming the operator and how many more slots would do."""
    sizes = [_bundles(one, curves) for one in allocation.operators]
    threads: list[list[int]] = [[] for _ in sizes]
    # Asked for in this way, empty slots are taken in their order: VMs before the one in use are always full.
    empty = iter(range(cluster.slots))
    shared = _SharedSlots()
    sweep, pending = 0, list(range(len(sizes)))
    while pending:
        still = []  # operators with more to place after this sweep: a sweep costs what it places
        for number in pending:
            full, bundle_threads, rest = sizes[number]
            if sweep < full:
                slot, count, lacked = (
                    next(empty, None),
                    bundle_threads,
                    "a full bundle wants an empty slot; none is left",
                )
                if sweep + 1 < full or rest is not None:
                    still.append(number)
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
        sweep, pending = sweep + 1, still
    names = [one.operator for one in allocation.operators]
    return Placement(
        method="sam",
        cluster=cluster,
        slot_of={name: tuple(slots) for name, slots in zip(names, threads, strict=True)},
    )


def slots_needed(allocation: Allocation, curves: Mapping[str, Curve]) -> int:
    """The slots on which `sam` succeeds: exactly as many as it opens where slots never end.

    Full bundles take one each; rests come in the same order, to the same open slots, on any cluster.
    """
    sizes = [_bundles(one, curves) for one in allocation.operators]
    shared = _SharedSlots()
    # In the order of the sweeps: a rest comes after the full bundles of its operator.
    rests = sorted((full, number, rest) for number, (full, _, rest) in enumerate(sizes) if rest is not None)
    opened = 0
    for _, _, rest in rests:
        if shared.best_fit(rest) is None:
            shared.open(opened, rest)
            opened += 1
    return opened + sum(full for full, _, _ in sizes)


def _bundles(one: OperatorAllocation, curves: Mapping[str, Curve]) -> tuple[int, int, Bundle | None]:
    """(full bundles, threads of each, rest). Threads that LSA counted one by one are bundled by the curve."""
    if one.exclusive:
        return one.bundles, one.bundle.threads, one.rest
    curve = curve_of(one.operator, curves)
    full, left = divmod(one.bundles * one.bundle.threads, curve.best_threads)
    last = one.rest.threads if one.rest else 0
    if left + last == 0:
        return full, curve.best_threads, None
    if left == 0 and one.rest:
        return full, curve.best_threads, scaled(curve, one.rest.rows_per_s)
    point = curve.at(left + last)
    rest = Bundle(threads=left + last, rows_per_s=point.rows_per_s, cpu=point.cpu, memory=point.memory)
    return full, curve.best_threads, rest


class _SharedSlots:
    """Slots that hold rests, sorted by free CPU% + memory%; among equals the one opened first."""

    def __init__(self) -> None:
        self._slots: list[int] = []  # in the order they were opened
        self._open: list[tuple[float, int, float, float]] = []  # (free CPU + memory, which, free CPU, free memory)

    def best_fit(self, rest: Bundle) -> int | None:
        """Takes the room and says the slot; None where no open slot holds the rest."""
        at = bisect_left(self._open, (rest.cpu + rest.memory - 4 * SLACK,))
        while at < len(self._open):
            _, which, cpu, memory = self._open[at]
            if rest.cpu <= cpu + SLACK and rest.memory <= memory + SLACK:
                del self._open[at]
                self._add(which, cpu - rest.cpu, memory - rest.memory)
                return self._slots[which]
            at += 1
        return None

    def open(self, slot: int, rest: Bundle) -> None:
        self._slots.append(slot)
        self._add(len(self._slots) - 1, SLOT - rest.cpu, SLOT - rest.memory)

    def _add(self, which: int, cpu: float, memory: float) -> None:
        insort(self._open, (cpu + memory, which, cpu, memory))
