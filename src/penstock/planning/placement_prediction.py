"""What a placement sustains by the curves, what binds it, and the CPU and memory of every slot and VM.

Source: Shukla and Simmhan, JPDC 2018, predictions from the performance models: n threads of an operator on a slot do at
most w(n), and at a lower rate use CPU and memory in proportion. How rows reach the threads decides the rest. With n_s
threads on slot s and N in all, an operator that gets `gain` rows for a row from outside sustains

    shuffle       each thread gets as many rows (Storm's shuffle grouping):  min over s of  w(n_s) N / n_s / gain
    proportional  each slot gets rows by its capacity (left by the paper as future work):  sum over s of w(n_s) / gain

and the dataflow what its weakest operator sustains. Operators that share a slot are counted as the paper does, as if
each had its curve for itself; `within_slots_rows_per_s` is the rate up to which that is fair: no slot above 100% CPU or
memory. It can be a little below the planned rate even for MBA and SAM with rows by capacity, where a rest of one thread
was charged for part of its peak and then gets its even share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from penstock.models.curve import Curve
from penstock.models.flow import Flow, gains
from penstock.planning.allocation import SLOT, AllocationError, curve_of
from penstock.planning.placement import Placement


class Routing(Enum):
    SHUFFLE = "shuffle"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """Percent of one slot; a VM of 4 slots can use 400."""

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPrediction:
    routing: Routing
    rows_per_s: float  # the highest external rate that the curves sustain
    within_slots_rows_per_s: float  # the highest of those at which no slot is above 100% CPU or memory
    binding: str  # the operator that sets rows_per_s
    operators: Mapping[str, float]  # the external rate that each operator alone would sustain
    at_rows_per_s: float  # the rate of the use below
    slots: tuple[ResourceUse, ...]
    vms: tuple[ResourceUse, ...]
    beyond_measured: tuple[str, ...]  # operators with more threads on a slot than their curve was measured with


def shares(groups: Mapping[int, int], curve: Curve, routing: Routing) -> dict[int, float]:
    """The part of an operator's rows that each of its slots gets: by threads, or by capacity."""
    if routing is Routing.SHUFFLE:
        weight = {slot: float(threads) for slot, threads in groups.items()}
    else:
        weight = {slot: curve.at(threads).rows_per_s for slot, threads in groups.items()}
    total = math.fsum(weight.values())
    return {slot: value / total for slot, value in weight.items()}


def predict(
    flow: Flow,
    placement: Placement,
    curves: Mapping[str, Curve],
    routing: Routing,
    *,
    planned_rows_per_s: float = math.inf,
) -> PlacementPrediction:
    """ResourceUse is given at the planned rate, or at the highest sustained one where that is lower."""
    groups = placement.groups()
    cluster = placement.cluster
    cpu_per_row, memory_per_row = [0.0] * cluster.slots, [0.0] * cluster.slots  # percent for each external row/s
    sustained: dict[str, float] = {}
    beyond: list[str] = []
    for name, gain in gains(flow).items():
        curve = curve_of(name, curves)
        if not groups.get(name):
            raise AllocationError(f"operator '{name}' has no thread in the placement; place every operator")
        if max(groups[name].values()) > curve.measured_threads:
            beyond.append(name)
        part = shares(groups[name], curve, routing)
        sustained[name] = math.inf
        for slot, threads in groups[name].items():
            point = curve.at(threads)
            rows = gain * part[slot]  # rows/s to this slot for each external row/s
            if rows > 0:
                sustained[name] = min(sustained[name], point.rows_per_s / rows)
            cpu_per_row[slot] += point.cpu * rows / point.rows_per_s
            memory_per_row[slot] += point.memory * rows / point.rows_per_s
    binding = min(sustained, key=sustained.__getitem__)
    rate = sustained[binding]
    at = min(rate, planned_rows_per_s)
    at = at if math.isfinite(at) else 0.0  # no operator gets any row: nothing binds, and nothing is used
    slots = tuple(ResourceUse(cpu=c * at, memory=m * at) for c, m in zip(cpu_per_row, memory_per_row, strict=True))
    return PlacementPrediction(
        routing=routing,
        rows_per_s=rate,
        within_slots_rows_per_s=min(rate, _rate_within_slots(placement, cpu_per_row, memory_per_row)),
        binding=binding,
        operators=sustained,
        at_rows_per_s=at,
        slots=slots,
        vms=tuple(_sum(slots[first:end]) for first, end in _vm_ranges(placement)),
        beyond_measured=tuple(beyond),
    )


def _rate_within_slots(placement: Placement, cpu_per_row: list[float], memory_per_row: list[float]) -> float:
    """Memory is a slot's own. So is CPU, unless the mapping counts on all cores of the VM for all its slots."""
    most = max(memory_per_row, default=0.0)
    if placement.cpu_pooled:
        most = max([most, *(math.fsum(cpu_per_row[first:end]) / (end - first) for first, end in _vm_ranges(placement))])
    else:
        most = max([most, *cpu_per_row])
    return SLOT / most if most > 0 else math.inf


def _vm_ranges(placement: Placement) -> list[tuple[int, int]]:
    bounds = placement.cluster.first_slot
    return list(pairwise(bounds))


def _sum(slots: tuple[ResourceUse, ...]) -> ResourceUse:
    return ResourceUse(cpu=math.fsum(use.cpu for use in slots), memory=math.fsum(use.memory for use in slots))
