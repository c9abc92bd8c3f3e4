"""Schedule a dataflow on VMs: allocate threads, acquire VMs, map threads to slots, predict the sustained rate.

Source: Shukla and Simmhan, "Model-driven scheduling for distributed stream processing systems", JPDC 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError
from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning import rsm as rstorm
from penstock.planning.allocation import Allocation
from penstock.planning.dsm import dsm
from penstock.planning.lsa import lsa
from penstock.planning.mba import mba
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import PlacementPrediction, Routing, predict
from penstock.planning.sam import sam, slots_needed
from penstock.planning.slot_bound import SlotBounds, slot_bounds
from penstock.planning.vms import ONE_SLOT, VmSize, acquire, slots_acquired

ALLOCATIONS: Mapping[str, Callable[[Flow, float, Mapping[str, Curve]], Allocation]] = {"mba": mba, "lsa": lsa}
MAPPINGS = ("dsm", "rsm", "sam")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSchedule:
    """Threads of a dataflow on the slots of VMs, with the predicted rate for both kinds of routing."""

    flow: Flow
    allocation: Allocation
    bounds: SlotBounds
    placement: Placement
    extra_slots: int  # slots that the mapping needed in addition to the allocated ones
    shuffle: PlacementPrediction
    proportional: PlacementPrediction


def schedule_threads(
    flow: Flow,
    rows_per_s: float,
    curves: Mapping[str, Curve],
    *,
    method: str = "mba",
    mapping: str = "sam",
    sizes: Sequence[VmSize] = (ONE_SLOT,),
) -> ThreadSchedule:
    """Schedule `flow` for an external rate of `rows_per_s`.

    `method` is a key of `ALLOCATIONS` and `mapping` one of `MAPPINGS`; any other value raises a PenstockError.

    >>> from penstock.models.curve import CurvePoint
    >>> from penstock.models.flow import FlowStream
    >>> flow = Flow(operators=("parse",), streams=(FlowStream(source=None, target="parse"),))
    >>> parse = Curve(threads=(1,), points=(CurvePoint(rows_per_s=100, cpu=80, memory=10),))
    >>> schedule_threads(flow, 250, {"parse": parse}).placement.slot_of
    {'parse': (0, 1, 2)}
    """
    if method not in ALLOCATIONS:
        raise PenstockError(f"'{method}' is not an allocation method. Choose one of: {', '.join(ALLOCATIONS)}.")
    allocation = ALLOCATIONS[method](flow, rows_per_s, curves)
    placement, extra_slots = place(allocation, curves, mapping=mapping, sizes=sizes)
    predictions = {
        routing: predict(flow, placement, curves, routing, planned_rows_per_s=rows_per_s) for routing in Routing
    }
    return ThreadSchedule(
        flow=flow,
        allocation=allocation,
        bounds=slot_bounds(flow, rows_per_s, curves),
        placement=placement,
        extra_slots=extra_slots,
        shuffle=predictions[Routing.SHUFFLE],
        proportional=predictions[Routing.PROPORTIONAL],
    )


def place(
    allocation: Allocation,
    curves: Mapping[str, Curve],
    *,
    mapping: str = "sam",
    sizes: Sequence[VmSize] = (ONE_SLOT,),
) -> tuple[Placement, int]:
    """Acquire VMs for the allocated slots and map the threads to them.

    If the threads do not fit, one slot is added at a time until they do, as in the paper. Return the placement and the
    number of slots added.
    """
    if mapping == "dsm":
        return dsm(allocation, acquire(allocation.slots, sizes)), 0
    if mapping == "sam":
        requested, needed = allocation.slots, slots_needed(allocation, curves)
        while slots_acquired(requested, sizes) < needed:
            requested += 1
        return sam(allocation, acquire(requested, sizes), curves), requested - allocation.slots
    if mapping == "rsm":
        return _place_with_rsm(allocation, sizes)
    raise PenstockError(f"'{mapping}' is not a mapping. Choose one of: {', '.join(MAPPINGS)}.")


def _place_with_rsm(allocation: Allocation, sizes: Sequence[VmSize]) -> tuple[Placement, int]:
    requested, fewest = allocation.slots, rstorm.fewest_slots(allocation)
    last_cluster = None
    while True:
        cluster = acquire(requested, sizes) if slots_acquired(requested, sizes) >= fewest else None
        if cluster is not None and cluster != last_cluster:  # one more slot often gives the same VMs
            placement = rstorm.try_rsm(allocation, cluster)
            if isinstance(placement, Placement):
                return placement, requested - allocation.slots
            last_cluster = cluster
        requested += 1
