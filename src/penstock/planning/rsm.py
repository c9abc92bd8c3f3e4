"""R-Storm mapping: each thread to the VM whose free CPU and memory are nearest to what it needs, and nearby.

Source: Shukla and Simmhan, JPDC 2018, algorithm RSM (after Peng et al., R-Storm, Middleware 2015). One thread of each
operator a sweep, in breadth-first order. VMs are tried by ascending

    distance = sqrt(w_memory (memory needed - free)^2 + w_cpu (CPU needed - free)^2 + w_network net^2)

in percent of a slot, free over all slots of the VM; net is 0 on the VM used last, 0.5 in its rack, 1 elsewhere. CPU
must be free on the VM (its cores serve all its slots), memory on one slot (the first of the VM that has it). With CPU
and memory in percent, the network only breaks near ties unless its weight is raised: that is how the paper has it.

What one thread needs is its part of what the allocation charged: for LSA what one thread was measured to use, for MBA a
bundle's CPU and memory over its threads. (Charging MBA's many threads as lone ones would ask several times the slots
allocated; the paper's own MBA + RSM placements have some 30 blob threads on a slot, where four lone ones fill it.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.models.queueing.errors import told_apart
from penstock.planning.allocation import SLACK, SLOT, Allocation, Bundle, OperatorAllocation
from penstock.planning.placement import Placement, PlacementError
from penstock.planning.vms import VmCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceWeights:
    """Of the terms of the distance."""

    memory: float = 1.0
    cpu: float = 1.0
    network: float = 1.0

    def __post_init__(self) -> None:
        for name in ("memory", "cpu", "network"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise PenstockError(
                    f"the {name} weight of the distance is {value}; it must be a finite number, 0 or more"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedThread:
    operator: str
    lacked: str


def rsm(allocation: Allocation, cluster: VmCluster, weights: DistanceWeights | None = None) -> Placement:
    """Places every thread, or fails naming the operator, what it lacked, and how many more one-slot VMs would do."""
    placed = attempt(allocation, cluster, weights)
    if isinstance(placed, Placement):
        return placed
    more = max(1, fewest_slots(allocation) - cluster.slots)
    while not isinstance(attempt(allocation, cluster.with_one_slot_vms(more), weights), Placement):
        more += 1
    raise PlacementError(
        method="rsm", operator=placed.operator, threads=1, lacked=placed.lacked, slots=cluster.slots, more_slots=more
    )


def fewest_slots(allocation: Allocation) -> int:
    """Fewer slots than this never do, so none need be tried: memory stays within a slot, CPU within the cluster."""
    by_memory = 0
    for one in allocation.operators:
        for bundle, count in ((one.bundle, one.bundles), (one.rest, 1)):
            memory = bundle.memory / bundle.threads if bundle else 0.0
            if bundle and memory > 1.0:  # of thinner threads so many share a slot that the sum below says as much
                by_memory = max(by_memory, math.ceil(count * bundle.threads / max(1, int((SLOT + SLACK) / memory))))
    used = math.ceil((max(allocation.cpu, allocation.memory) - SLACK * allocation.threads) / SLOT)
    return max(1, by_memory, used)


def attempt(
    allocation: Allocation, cluster: VmCluster, weights: DistanceWeights | None = None
) -> Placement | UnplacedThread:
    """One run of the algorithm: every thread placed, or the first that found no room."""
    weights = weights or DistanceWeights()
    sizes = np.array([vm.size.slots for vm in cluster.vms], dtype=float)
    racks = np.array([vm.size.rack for vm in cluster.vms])
    free_cpu, free_memory = sizes * SLOT, sizes * SLOT
    slot_memory = [SLOT] * cluster.slots
    roomiest = np.full(len(cluster.vms), SLOT)  # the most memory free on one slot of each VM
    last_vm = 0  # the paper starts from any VM, say the first
    network = _network(last_vm, racks, weights)
    slots: dict[str, list[int]] = {one.operator: [] for one in allocation.operators}
    for operator, cpu, memory in _sweeps(allocation):
        fits = (free_cpu >= cpu - SLACK) & (roomiest >= memory - SLACK)
        if not fits.any():
            return UnplacedThread(operator=operator, lacked=_lacked(cpu, memory, free_cpu, roomiest))
        distance = weights.memory * (memory - free_memory) ** 2 + weights.cpu * (cpu - free_cpu) ** 2 + network
        vm = int(np.argmin(np.where(fits, distance, np.inf)))  # the root does not change which is the least
        first, end = cluster.first_slot[vm], cluster.first_slot[vm + 1]
        slot = next(slot for slot in range(first, end) if slot_memory[slot] >= memory - SLACK)
        slots[operator].append(slot)
        free_cpu[vm] -= cpu
        free_memory[vm] -= memory
        slot_memory[slot] -= memory
        roomiest[vm] = max(slot_memory[first:end])
        if vm != last_vm:
            last_vm = vm
            network = _network(vm, racks, weights)
    return Placement(
        method="rsm", cluster=cluster, slot_of={name: tuple(found) for name, found in slots.items()}, cpu_pooled=True
    )


def _network(last_vm: int, racks: np.ndarray, weights: DistanceWeights) -> np.ndarray:
    """The network term of each VM: 0 on the VM used last, 0.5^2 in its rack, 1^2 elsewhere."""
    term = weights.network * np.where(racks == racks[last_vm : last_vm + 1], 0.25, 1.0)
    term[last_vm : last_vm + 1] = 0.0
    return term


def _sweeps(allocation: Allocation) -> Iterator[tuple[str, float, float]]:
    """(operator, CPU, memory) of each thread: one thread of each operator a sweep."""
    pending = [(one.operator, _threads(one)) for one in allocation.operators]
    while pending:
        still = []
        for operator, threads in pending:
            need = next(threads, None)
            if need is not None:
                yield operator, *need
                still.append((operator, threads))
        pending = still


def _threads(one: OperatorAllocation) -> Iterator[tuple[float, float]]:
    for bundle, count in ((one.bundle, one.bundles), (one.rest, 1)):
        if bundle is not None:
            yield from [_need(bundle)] * (count * bundle.threads)


def _need(bundle: Bundle) -> tuple[float, float]:
    return bundle.cpu / bundle.threads, bundle.memory / bundle.threads


def _lacked(cpu: float, memory: float, free_cpu: np.ndarray, roomiest: np.ndarray) -> str:
    if len(free_cpu) == 0:
        return "there is no slot"
    if free_cpu.max() < cpu - SLACK:
        needed, free = told_apart(cpu, float(free_cpu.max()), digits=4)
        return f"it needs {needed}% CPU and no VM has more than {free}% free"
    if roomiest.max() < memory - SLACK:
        needed, free = told_apart(memory, float(roomiest.max()), digits=4)
        return f"it needs {needed}% memory and no slot has more than {free}% free"
    return f"it needs {cpu:.2f}% CPU and {memory:.2f}% memory, and no VM has both free"
