"""Predict the rate that a placement sustains, the operator that limits it, and the use of every slot and VM.

Source: Shukla and Simmhan, JPDC 2018, section 7. n threads of an operator on one slot process at most w(n) rows/s. At a
lower rate they use CPU and memory in proportion. Let n_s be the threads of an operator on slot s, N their total, and
`gain` the rows that reach the operator per external row. The operator sustains

    shuffle       every thread receives the same rate (Storm's shuffle grouping):  min over s of  w(n_s) N / n_s / gain
    proportional  every slot receives rows by its capacity (future work in the paper):  sum over s of w(n_s) / gain

The dataflow sustains the minimum over its operators. Operators that share a slot are treated as if each were alone,
like in the paper. `within_slots_rows_per_s` is the rate up to which no slot exceeds 100% CPU or memory, so that this
assumption is plausible. It can be slightly below the planned rate even for MBA and SAM with proportional routing: a
rest of one thread is charged for a part of its peak rate, but receives its proportional share.
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
    """How the rows of an operator are distributed over its threads."""

    SHUFFLE = "shuffle"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """CPU and memory in percent of one slot; a VM with 4 slots has 400%."""

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPrediction:
    """The predicted rate of a placement and the use of its slots and VMs."""

    routing: Routing
    rows_per_s: float  # the highest external rate that the curves sustain
    within_slots_rows_per_s: float  # the highest sustained rate at which no slot exceeds 100% CPU or memory
    binding: str  # the operator that limits `rows_per_s`
    operators: Mapping[str, float]  # the external rate that each operator sustains
    at_rows_per_s: float  # the external rate for which `slots` and `vms` are given
    slots: tuple[ResourceUse, ...]
    vms: tuple[ResourceUse, ...]
    beyond_measured: tuple[str, ...]  # operators with more threads on a slot than their curve was measured with


def shares(groups: Mapping[int, int], curve: Curve, routing: Routing) -> dict[int, float]:
    """Return the share of an operator's rows that each of its slots receives, by threads or by capacity."""
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
    """Predict a placement. Use is given at the planned rate, or at the highest sustained rate if that is lower."""
    groups = placement.groups()
    cluster = placement.cluster
    cpu_per_row, memory_per_row = [0.0] * cluster.slots, [0.0] * cluster.slots  # percent per external row/s
    sustained: dict[str, float] = {}
    beyond: list[str] = []
    for name, gain in gains(flow).items():
        curve = curve_of(name, curves)
        if not groups.get(name):
            raise AllocationError(f"Operator '{name}' has no thread in the placement. Place every operator.")
        if max(groups[name].values()) > curve.measured_threads:
            beyond.append(name)
        share = shares(groups[name], curve, routing)
        sustained[name] = math.inf
        for slot, threads in groups[name].items():
            point = curve.at(threads)
            rows = gain * share[slot]  # rows/s to this slot per external row/s
            if rows > 0:
                sustained[name] = min(sustained[name], point.rows_per_s / rows)
            cpu_per_row[slot] += point.cpu * rows / point.rows_per_s
            memory_per_row[slot] += point.memory * rows / point.rows_per_s
    binding = min(sustained, key=sustained.__getitem__)
    rate = sustained[binding]
    at_rate = min(rate, planned_rows_per_s)
    at_rate = at_rate if math.isfinite(at_rate) else 0.0  # no operator receives rows: no limit and no use
    slots = tuple(
        ResourceUse(cpu=c * at_rate, memory=m * at_rate) for c, m in zip(cpu_per_row, memory_per_row, strict=True)
    )
    return PlacementPrediction(
        routing=routing,
        rows_per_s=rate,
        within_slots_rows_per_s=min(rate, _rate_within_slots(placement, cpu_per_row, memory_per_row)),
        binding=binding,
        operators=sustained,
        at_rows_per_s=at_rate,
        slots=slots,
        vms=tuple(_sum(slots[first:end]) for first, end in _vm_ranges(placement)),
        beyond_measured=tuple(beyond),
    )


def _rate_within_slots(placement: Placement, cpu_per_row: list[float], memory_per_row: list[float]) -> float:
    """Return the external rate at which the first slot reaches 100% (with pooled CPU: the first VM reaches its CPU)."""
    highest_use = max(memory_per_row, default=0.0)
    if placement.cpu_pooled:
        highest_use = max(
            [highest_use, *(math.fsum(cpu_per_row[first:end]) / (end - first) for first, end in _vm_ranges(placement))]
        )
    else:
        highest_use = max([highest_use, *cpu_per_row])
    return SLOT / highest_use if highest_use > 0 else math.inf


def _vm_ranges(placement: Placement) -> list[tuple[int, int]]:
    bounds = placement.cluster.first_slot
    return list(pairwise(bounds))


def _sum(slots: tuple[ResourceUse, ...]) -> ResourceUse:
    return ResourceUse(cpu=math.fsum(use.cpu for use in slots), memory=math.fsum(use.memory for use in slots))
