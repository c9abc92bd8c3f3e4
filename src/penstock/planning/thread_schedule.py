"""From a dataflow, a rate and curves to threads on VMs: allocate, acquire, map, predict; and the report of it all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

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
from penstock.planning.rsm import DistanceWeights
from penstock.planning.sam import sam, slots_needed
from penstock.planning.slot_bound import SlotBounds, slot_bounds
from penstock.planning.vms import ONE_SLOT, VmSize, acquire, slots_acquired

ALLOCATIONS: Mapping[str, Callable[[Flow, float, Mapping[str, Curve]], Allocation]] = {"mba": mba, "lsa": lsa}
MAPPINGS = ("dsm", "rsm", "sam")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSchedule:
    flow: Flow
    allocation: Allocation
    bounds: SlotBounds
    placement: Placement
    extra_slots: int  # that the mapping needed beyond what was allocated
    shuffle: PlacementPrediction
    proportional: PlacementPrediction


def schedule(
    flow: Flow,
    rows_per_s: float,
    curves: Mapping[str, Curve],
    *,
    method: str = "mba",
    mapping: str = "sam",
    sizes: Sequence[VmSize] = (ONE_SLOT,),
    weights: DistanceWeights | None = None,
    grow: bool = True,
) -> ThreadSchedule:
    if method not in ALLOCATIONS:
        raise PenstockError(f"'{method}' is no allocation method; choose one of: {', '.join(ALLOCATIONS)}")
    allocation = ALLOCATIONS[method](flow, rows_per_s, curves)
    placement, extra = place(allocation, curves, mapping=mapping, sizes=sizes, weights=weights, grow=grow)
    predicted = {
        routing: predict(flow, placement, curves, routing, planned_rows_per_s=rows_per_s) for routing in Routing
    }
    return ThreadSchedule(
        flow=flow,
        allocation=allocation,
        bounds=slot_bounds(flow, rows_per_s, curves),
        placement=placement,
        extra_slots=extra,
        shuffle=predicted[Routing.SHUFFLE],
        proportional=predicted[Routing.PROPORTIONAL],
    )


def place(
    allocation: Allocation,
    curves: Mapping[str, Curve],
    *,
    mapping: str = "sam",
    sizes: Sequence[VmSize] = (ONE_SLOT,),
    weights: DistanceWeights | None = None,
    grow: bool = True,
) -> tuple[Placement, int]:
    """Acquires VMs for the slots allocated and maps onto them; the placement, and the slots added to make it fit.

    Where threads do not fit, it asks for one slot more until they do, as the paper does; without `grow` it fails.
    """
    if mapping == "dsm":
        return dsm(allocation, acquire(allocation.slots, sizes)), 0
    if mapping == "sam":
        asked = allocation.slots
        needed = slots_needed(allocation, curves) if grow else 0
        while slots_acquired(asked, sizes) < needed:
            asked += 1
        return sam(allocation, acquire(asked, sizes), curves), asked - allocation.slots
    if mapping == "rsm":
        if not grow:
            return rstorm.rsm(allocation, acquire(allocation.slots, sizes), weights), 0
        return _grow_rsm(allocation, sizes, weights)
    raise PenstockError(f"'{mapping}' is no mapping; choose one of: {', '.join(MAPPINGS)}")


def _grow_rsm(
    allocation: Allocation, sizes: Sequence[VmSize], weights: DistanceWeights | None
) -> tuple[Placement, int]:
    asked, fewest = allocation.slots, rstorm.fewest_slots(allocation)
    tried = None
    while True:
        cluster = acquire(asked, sizes) if slots_acquired(asked, sizes) >= fewest else None
        if cluster is not None and cluster != tried:  # one slot more is often the same VMs
            placed = rstorm.attempt(allocation, cluster, weights)
            if isinstance(placed, Placement):
                return placed, asked - allocation.slots
            tried = cluster
        asked += 1


class OperatorReport(msgspec.Struct, frozen=True, kw_only=True):
    input_rows_per_s: float
    threads: int
    cpu: float
    memory: float


class UseReport(msgspec.Struct, frozen=True, kw_only=True):
    cpu: float
    memory: float


class VmReport(msgspec.Struct, frozen=True, kw_only=True):
    """Use is that of shuffle routing, at the planned rate or the highest sustained one below it."""

    name: str
    size: str
    slots: int
    rack: int
    price_per_h: float | None
    cpu: float
    memory: float


class PredictionReport(msgspec.Struct, frozen=True, kw_only=True):
    rows_per_s: float
    within_slots_rows_per_s: float
    binding: str
    at_rows_per_s: float
    slots: dict[str, UseReport]
    vms: dict[str, UseReport]
    beyond_measured: tuple[str, ...]


class RouteReport(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    source: str
    target: str
    from_slot: str
    to_slot: str
    share: float


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `penstock allocate --json` prints. CPU and memory are percent of one slot."""

    method: str
    map: str
    rate_rows_per_s: float
    operators: dict[str, OperatorReport]
    threads: int
    cpu: float
    memory: float
    slots: int
    extra_slots: int
    lower_bound: int
    sustaining_lower_bound: int
    vms: list[VmReport]
    vm_slots: int
    price_per_h: float | None
    cheapest_price_per_h: float | None
    placement: dict[str, list[str]]
    predicted_rows_per_s: float  # with shuffle routing; `predicted` has both
    predicted: dict[str, PredictionReport]
    routes: list[RouteReport]
    on_same_vm: float

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def report(
    planned: ThreadSchedule, curves: Mapping[str, Curve], sizes: Sequence[VmSize] = (ONE_SLOT,)
) -> ScheduleReport:
    from penstock.planning.routing import local_share, routes
    from penstock.planning.vms import cheapest_price_per_h

    allocation, placement = planned.allocation, planned.placement
    cluster = placement.cluster
    name = [cluster.slot_name(slot) for slot in range(cluster.slots)]
    table = routes(planned.flow, placement, curves)
    return ScheduleReport(
        method=allocation.method,
        map=placement.method,
        rate_rows_per_s=allocation.rows_per_s,
        operators={
            one.operator: OperatorReport(
                input_rows_per_s=one.input_rows_per_s, threads=one.threads, cpu=one.cpu, memory=one.memory
            )
            for one in allocation.operators
        },
        threads=allocation.threads,
        cpu=allocation.cpu,
        memory=allocation.memory,
        slots=allocation.slots,
        extra_slots=planned.extra_slots,
        lower_bound=planned.bounds.any_method,
        sustaining_lower_bound=planned.bounds.sustaining,
        vms=[
            VmReport(
                name=vm.name,
                size=vm.size.name,
                slots=vm.size.slots,
                rack=vm.size.rack,
                price_per_h=vm.size.price_per_h,
                cpu=use.cpu,
                memory=use.memory,
            )
            for vm, use in zip(cluster.vms, planned.shuffle.vms, strict=True)
        ],
        vm_slots=cluster.slots,
        price_per_h=cluster.price_per_h,
        cheapest_price_per_h=cheapest_price_per_h(allocation.slots + planned.extra_slots, sizes),
        placement={operator: [name[slot] for slot in slots] for operator, slots in placement.slot_of.items()},
        predicted_rows_per_s=planned.shuffle.rows_per_s,
        predicted={
            one.routing.value: _prediction_report(one, placement, name)
            for one in (planned.shuffle, planned.proportional)
        },
        routes=[
            RouteReport(
                source=one.source,
                target=one.target,
                from_slot=name[one.from_slot],
                to_slot=name[one.to_slot],
                share=one.share,
            )
            for one in table
        ],
        on_same_vm=local_share(table, placement),
    )


def _prediction_report(one: PlacementPrediction, placement: Placement, slot_names: list[str]) -> PredictionReport:
    return PredictionReport(
        rows_per_s=one.rows_per_s,
        within_slots_rows_per_s=one.within_slots_rows_per_s,
        binding=one.binding,
        at_rows_per_s=one.at_rows_per_s,
        slots={
            name: UseReport(cpu=use.cpu, memory=use.memory) for name, use in zip(slot_names, one.slots, strict=True)
        },
        vms={
            vm.name: UseReport(cpu=use.cpu, memory=use.memory)
            for vm, use in zip(placement.cluster.vms, one.vms, strict=True)
        },
        beyond_measured=one.beyond_measured,
    )
