"""The document that `penstock allocate --json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.models.curve import Curve
from penstock.plan import Plan
from penstock.planning.allocation import Allocation
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import PlacementPrediction, ResourceUse
from penstock.planning.plan_prediction import SlotUse
from penstock.planning.routing import Route, routes, share_within_vms
from penstock.planning.thread_schedule import ThreadSchedule
from penstock.planning.vms import ONE_SLOT, VmSize, cheapest_price_per_h


class OperatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The threads of one operator and the CPU and memory allocated to them."""

    input_rows_per_s: float
    threads: int
    cpu: float
    memory: float


class VmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One VM and its predicted use with shuffle routing, at the planned rate or the highest sustained rate below it."""

    name: str
    size: str
    slots: int
    rack: int
    price_per_h: float | None
    cpu: float
    memory: float


class PlacementPredictionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The sustained rate of the placement for one kind of routing, and the use of each slot and VM."""

    rows_per_s: float
    within_slots_rows_per_s: float
    binding: str
    at_rows_per_s: float
    slots: dict[str, SlotUse]
    vms: dict[str, SlotUse]
    beyond_measured: tuple[str, ...]


class RouteReport(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """The share of a stream's rows that goes from one slot to another."""

    source: str
    target: str
    from_slot: str
    to_slot: str
    share: float


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `penstock allocate --json`. CPU and memory are in percent of one slot."""

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
    predicted_rows_per_s: float  # rate with shuffle routing; `predicted` has both kinds
    predicted: dict[str, PlacementPredictionReport]
    routes: list[RouteReport]
    on_same_vm: float
    plan: Plan | None = None  # only for a dataflow of operators
    plan_rows_per_s: float | None = None  # sustained by the plan
    plan_latency_s: float | None = None  # mean latency at the rate, in micro-batches
    plan_price_per_h: float | None = None  # price of VMs for the slots of the plan
    # Predicted use of each slot at the rate, by group of executors; "" is the group of all other executors.
    plan_use: dict[str, SlotUse] = {}
    plan_binding: str | None = None  # the operator that limits this rate
    plan_notes: tuple[str, ...] = ()  # properties of the schedule that the plan cannot express

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def schedule_report(
    schedule: ThreadSchedule, curves: Mapping[str, Curve], sizes: Sequence[VmSize] = (ONE_SLOT,)
) -> ScheduleReport:
    """Return the report of a schedule that was made with these curves and VM sizes."""
    allocation, placement = schedule.allocation, schedule.placement
    cluster = placement.cluster
    slot_names = [cluster.slot_name(slot) for slot in range(cluster.slots)]
    table = routes(schedule.flow, placement, curves)
    return ScheduleReport(
        method=allocation.method,
        map=placement.method,
        rate_rows_per_s=allocation.rows_per_s,
        operators=_operator_reports(allocation),
        threads=allocation.threads,
        cpu=allocation.cpu,
        memory=allocation.memory,
        slots=allocation.slots,
        extra_slots=schedule.extra_slots,
        lower_bound=schedule.bounds.any_method,
        sustaining_lower_bound=schedule.bounds.sustaining,
        vms=_vm_reports(placement, schedule.shuffle),
        vm_slots=cluster.slots,
        price_per_h=cluster.price_per_h,
        cheapest_price_per_h=cheapest_price_per_h(allocation.slots + schedule.extra_slots, sizes),
        placement={operator: [slot_names[slot] for slot in slots] for operator, slots in placement.slot_of.items()},
        predicted_rows_per_s=schedule.shuffle.rows_per_s,
        predicted={
            prediction.routing.value: _prediction_report(prediction, placement, slot_names)
            for prediction in (schedule.shuffle, schedule.proportional)
        },
        routes=[_route_report(route, slot_names) for route in table],
        on_same_vm=share_within_vms(table, placement),
    )


def _operator_reports(allocation: Allocation) -> dict[str, OperatorReport]:
    return {
        operator.operator: OperatorReport(
            input_rows_per_s=operator.input_rows_per_s,
            threads=operator.threads,
            cpu=operator.cpu,
            memory=operator.memory,
        )
        for operator in allocation.operators
    }


def _vm_reports(placement: Placement, prediction: PlacementPrediction) -> list[VmReport]:
    return [
        VmReport(
            name=vm.name,
            size=vm.size.name,
            slots=vm.size.slots,
            rack=vm.size.rack,
            price_per_h=vm.size.price_per_h,
            cpu=use.cpu,
            memory=use.memory,
        )
        for vm, use in zip(placement.cluster.vms, prediction.vms, strict=True)
    ]


def _prediction_report(
    prediction: PlacementPrediction, placement: Placement, slot_names: list[str]
) -> PlacementPredictionReport:
    return PlacementPredictionReport(
        rows_per_s=prediction.rows_per_s,
        within_slots_rows_per_s=prediction.within_slots_rows_per_s,
        binding=prediction.binding,
        at_rows_per_s=prediction.at_rows_per_s,
        slots={name: _use_report(use) for name, use in zip(slot_names, prediction.slots, strict=True)},
        vms={vm.name: _use_report(use) for vm, use in zip(placement.cluster.vms, prediction.vms, strict=True)},
        beyond_measured=prediction.beyond_measured,
    )


def _use_report(use: ResourceUse) -> SlotUse:
    return SlotUse(cpu=use.cpu, memory=use.memory)


def _route_report(route: Route, slot_names: list[str]) -> RouteReport:
    return RouteReport(
        source=route.source,
        target=route.target,
        from_slot=slot_names[route.from_slot],
        to_slot=slot_names[route.to_slot],
        share=route.share,
    )
