"""R-Storm mapping (RSM): place each thread on the nearest VM in terms of free CPU, free memory and network distance.

Source: Shukla and Simmhan, JPDC 2018, algorithm RSM (after Peng et al., R-Storm, Middleware 2015). Each sweep places
one thread of each operator, in breadth-first order, on the feasible VM with the smallest

    distance = sqrt(w_memory (memory needed - free)^2 + w_cpu (CPU needed - free)^2 + w_network net^2)

CPU and memory are in percent of a slot, summed over the slots of the VM. `net` is 0 on the VM used last, 0.5 in its
rack and 1 elsewhere. CPU must be free on the VM, because its cores serve all its slots. Memory must be free on one
slot; the first such slot is used. The network term only decides near ties unless its weight is raised.

A thread needs its share of the allocated CPU and memory. For LSA this is the measured use of one thread, for MBA the
use of a bundle divided by its threads. Charging MBA's threads as single threads would need several times the allocated
slots: the paper's MBA + RSM placements have about 30 blob threads on a slot, which four single threads would fill.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.models.queueing.errors import distinguishable
from penstock.planning.allocation import SLACK, SLOT, Allocation, Bundle, OperatorAllocation
from penstock.planning.placement import Placement, PlacementError
from penstock.planning.vms import VmCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceWeights:
    """The weights of the terms of the distance."""

    memory: float = 1.0
    cpu: float = 1.0
    network: float = 1.0

    def __post_init__(self) -> None:
        for name in ("memory", "cpu", "network"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise PenstockError(
                    f"The {name} weight of the distance is {value}. It must be a finite number, 0 or more."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedThread:
    """The first thread that did not fit, and the resource that was missing."""

    operator: str
    lacked: str


def rsm(allocation: Allocation, cluster: VmCluster, weights: DistanceWeights | None = None) -> Placement:
    """Place every thread. If one does not fit, raise a PlacementError with the one-slot VMs that have to be added."""
    result = try_rsm(allocation, cluster, weights)
    if isinstance(result, Placement):
        return result
    more = max(1, fewest_slots(allocation) - cluster.slots)
    while not isinstance(try_rsm(allocation, cluster.with_one_slot_vms(more), weights), Placement):
        more += 1
    raise PlacementError(
        method="rsm", operator=result.operator, threads=1, lacked=result.lacked, slots=cluster.slots, more_slots=more
    )


def fewest_slots(allocation: Allocation) -> int:
    """Return a lower bound of the slots that RSM needs: memory is limited per slot, CPU per cluster."""
    by_memory = 0
    for operator in allocation.operators:
        for bundle, count in ((operator.bundle, operator.bundles), (operator.rest, 1)):
            memory = bundle.memory / bundle.threads if bundle else 0.0
            if bundle and memory > 1.0:  # for smaller threads the sum below is as tight
                by_memory = max(by_memory, math.ceil(count * bundle.threads / max(1, int((SLOT + SLACK) / memory))))
    used = math.ceil((max(allocation.cpu, allocation.memory) - SLACK * allocation.threads) / SLOT)
    return max(1, by_memory, used)


def try_rsm(
    allocation: Allocation, cluster: VmCluster, weights: DistanceWeights | None = None
) -> Placement | UnplacedThread:
    """Run the algorithm once. Return the placement, or the first thread that does not fit."""
    weights = weights or DistanceWeights()
    sizes = np.array([vm.size.slots for vm in cluster.vms], dtype=float)
    racks = np.array([vm.size.rack for vm in cluster.vms])
    free_cpu, free_memory = sizes * SLOT, sizes * SLOT
    slot_memory = [SLOT] * cluster.slots
    free_on_slot = np.full(len(cluster.vms), SLOT)  # the largest free memory on one slot of each VM
    last_vm = 0  # the paper allows any VM to start from
    network = _network(last_vm, racks, weights)
    slots: dict[str, list[int]] = {operator.operator: [] for operator in allocation.operators}
    for operator, cpu, memory in _sweeps(allocation):
        fits = (free_cpu >= cpu - SLACK) & (free_on_slot >= memory - SLACK)
        if not fits.any():
            return UnplacedThread(operator=operator, lacked=_lacked(cpu, memory, free_cpu, free_on_slot))
        distance = weights.memory * (memory - free_memory) ** 2 + weights.cpu * (cpu - free_cpu) ** 2 + network
        vm = int(np.argmin(np.where(fits, distance, np.inf)))  # the square root does not change the minimum
        first, end = cluster.first_slot[vm], cluster.first_slot[vm + 1]
        slot = next(slot for slot in range(first, end) if slot_memory[slot] >= memory - SLACK)
        slots[operator].append(slot)
        free_cpu[vm] -= cpu
        free_memory[vm] -= memory
        slot_memory[slot] -= memory
        free_on_slot[vm] = max(slot_memory[first:end])
        if vm != last_vm:
            last_vm = vm
            network = _network(vm, racks, weights)
    return Placement(
        method="rsm",
        cluster=cluster,
        slot_of={name: tuple(assigned) for name, assigned in slots.items()},
        cpu_pooled=True,
    )


def _network(last_vm: int, racks: np.ndarray, weights: DistanceWeights) -> np.ndarray:
    """Return the network term of each VM: 0 on the VM used last, 0.5^2 in its rack, 1^2 elsewhere."""
    term = weights.network * np.where(racks == racks[last_vm : last_vm + 1], 0.25, 1.0)
    term[last_vm : last_vm + 1] = 0.0
    return term


def _sweeps(allocation: Allocation) -> Iterator[tuple[str, float, float]]:
    """Yield (operator, CPU, memory) of each thread; each sweep takes one thread of each operator."""
    pending = [(operator.operator, _threads(operator)) for operator in allocation.operators]
    while pending:
        remaining = []
        for operator, threads in pending:
            need = next(threads, None)
            if need is not None:
                yield operator, *need
                remaining.append((operator, threads))
        pending = remaining


def _threads(operator: OperatorAllocation) -> Iterator[tuple[float, float]]:
    for bundle, count in ((operator.bundle, operator.bundles), (operator.rest, 1)):
        if bundle is not None:
            yield from [_need(bundle)] * (count * bundle.threads)


def _need(bundle: Bundle) -> tuple[float, float]:
    return bundle.cpu / bundle.threads, bundle.memory / bundle.threads


def _lacked(cpu: float, memory: float, free_cpu: np.ndarray, free_on_slot: np.ndarray) -> str:
    if len(free_cpu) == 0:
        return "the cluster has no slot"
    if free_cpu.max() < cpu - SLACK:
        needed, free = distinguishable(cpu, float(free_cpu.max()), digits=4)
        return f"it needs {needed}% CPU and no VM has more than {free}% free"
    if free_on_slot.max() < memory - SLACK:
        needed, free = distinguishable(memory, float(free_on_slot.max()), digits=4)
        return f"it needs {needed}% memory and no slot has more than {free}% free"
    return f"it needs {cpu:.2f}% CPU and {memory:.2f}% memory, and no VM has both free"
