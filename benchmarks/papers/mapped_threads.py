"""Dataflows on five VMs with four slots: the planned rate of a pair of methods, and a simulation of its mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.dataflow import Dataflow, Kind, regions
from penstock.dataflow.errors import PenstockError
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.engines.simulated.rows.simulation import RowSimulation
from penstock.models.curve import Curve
from penstock.plan import Plan
from penstock.planning.dsm import dsm
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import PlacementPrediction, ResourceUse, Routing, predict
from penstock.planning.rsm import try_rsm
from penstock.planning.sam import sam
from penstock.planning.thread_plan import tasks_of
from penstock.planning.thread_schedule import ALLOCATIONS
from penstock.planning.vms import VmSize, acquire

PAIRS = (("lsa", "dsm"), ("lsa", "rsm"), ("mba", "dsm"), ("mba", "rsm"), ("mba", "sam"))
SLOTS = 20
STEP = 10.0  # rows/s between two rates that are planned or tried, as in the paper
_WARM_UP_S, _TRIAL_S = 200.0, 2_000.0
_SAMPLES = 1_200  # one per second on average
_NO_ROWS = 1e-9
_GROWTH = 0.1  # rows/s of a backlog: above it a rate is not sustained


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A mapping of a dataflow, the rate that it was planned for, and the prediction of what it sustains."""

    flow: Dataflow
    curves: Mapping[str, Curve]
    planned: float
    placement: Placement
    predicted: PlacementPrediction


def five_vms_deployment(
    flow: Dataflow, curves: Mapping[str, Curve], size: VmSize, method: str, mapping: str
) -> Deployment:
    """Return the mapping for the highest rate whose threads fit the slots."""
    tasks, own = tasks_of(flow, curves, {})
    cluster = acquire(SLOTS, (size,))
    best: tuple[float, Placement] | None = None
    rate = STEP
    while (allocation := ALLOCATIONS[method](tasks, rate, own)).slots <= SLOTS:
        placement: object = None
        try:
            if mapping == "dsm":
                placement = dsm(allocation, cluster)
            else:
                placement = sam(allocation, cluster, own) if mapping == "sam" else try_rsm(allocation, cluster)
        except PenstockError:
            pass  # no room for a thread
        if isinstance(placement, Placement):
            best = rate, placement
        rate += STEP
    assert best is not None, "the lowest rate fits"
    planned, chosen = best
    return Deployment(
        flow=flow,
        curves=curves,
        planned=planned,
        placement=chosen,
        predicted=predict(tasks, chosen, own, Routing.SHUFFLE, planned_rows_per_s=planned),
    )


def sustained(deployment: Deployment) -> tuple[float, float]:
    """Return the highest sustained rate, in steps as in the paper, and the mean latency at this rate."""
    low, low_latency_s = 0, 0.0
    high = int(1.5 * max(deployment.planned, deployment.predicted.rows_per_s) / STEP) + 2  # not sustained
    while high - low > 1:
        middle = (low + high) // 2
        latency_s = _latency_at(deployment, middle * STEP)
        if latency_s is None:
            high = middle
        else:
            low, low_latency_s = middle, latency_s
    return low * STEP, low_latency_s


def _latency_at(deployment: Deployment, rows_per_s: float) -> float | None:
    """Return the mean latency at a rate; None if a backlog grows."""
    engine = _engine(deployment, rows_per_s)
    engine.start()
    engine.advance(_WARM_UP_S)
    before = engine.observe()
    engine.advance(_TRIAL_S)
    after = engine.observe()
    for name in deployment.curves:
        waiting = [window.operator(name).backlog_rows or 0 for window in (before, after)]
        if waiting[1] - waiting[0] > _GROWTH * _TRIAL_S:
            return None
    return after.latency.mean_s if after.latency is not None else None


def use_of_vms(deployment: Deployment, rows_per_s: float) -> list[tuple[ResourceUse, ResourceUse]]:
    """Return the predicted and the simulated CPU% and memory% of each VM at a rate.

    A working thread uses its part of the CPU and memory of its bundle. A VM has no more CPU than its cores.
    """
    engine = _engine(deployment, rows_per_s)
    engine.start()
    engine.advance(_WARM_UP_S)
    simulation = engine.simulation
    assert isinstance(simulation, RowSimulation)
    vms, groups = deployment.placement.cluster.vms, deployment.placement.groups()
    slots_per_vm = vms[0].size.slots
    cpu, memory = np.zeros(len(vms)), np.zeros(len(vms))
    # Rows arrive at equal intervals, so samples at equal intervals would always see the same moment of a service.
    for gap_s in np.random.default_rng(1).exponential(1.0, _SAMPLES):
        engine.advance(float(gap_s))
        demand = np.zeros(len(vms))
        for name, curve in deployment.curves.items():
            working = simulation.working_threads(name)
            for (slot, threads), own in zip(groups[name].items(), working, strict=False):  # idle replicas are last
                point = curve.at(threads)
                demand[slot // slots_per_vm] += point.cpu * own / threads
                memory[slot // slots_per_vm] += point.memory * own / threads
        cpu += np.minimum(demand, 100.0 * slots_per_vm)
    scale = rows_per_s / deployment.predicted.at_rows_per_s
    return [
        (
            ResourceUse(cpu=use.cpu * scale, memory=use.memory * scale),
            ResourceUse(cpu=float(cpu[number]) / _SAMPLES, memory=float(memory[number]) / _SAMPLES),
        )
        for number, use in enumerate(deployment.predicted.vms)
    ]


def _engine(deployment: Deployment, rows_per_s: float) -> SimulatedEngine:
    """Return the simulation: each slot with threads of an operator is a replica, with rows by its threads.

    The processes on a VM share its cores.

    Operators that are replicated together have the same number of replicas. Additional ones get no rows.
    """
    flow, groups = deployment.flow, deployment.placement.groups()
    replicas = {}
    for region in regions(flow):
        count = max((len(groups[name]) for name in region.operators if name in groups), default=1)
        replicas |= {name: count for name in region.operators if region.kind is not Kind.SOURCE}
    places, threads, rates = {}, {}, {}
    for name in deployment.curves:
        own = groups[name]
        idle = [slot for slot in range(SLOTS) if slot not in own][: replicas[name] - len(own)]
        places[name] = (*own, *idle)
        threads[name] = (*own.values(), *(1 for _ in idle))
        rates[name] = (*map(float, own.values()), *(_NO_ROWS for _ in idle))
    plan = Plan(
        dataflow=flow.name,
        cuts=frozenset(operator.name for operator in flow.operators if operator.kind is not Kind.SINK),
        replicas=replicas,
        threads=dict(threads),
        rates=rates,
        slots=SLOTS,
    )
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(
                service_s=Exponential(mean=1.0 / curve.single.rows_per_s),
                curve={str(n): point for n, point in zip(curve.threads, curve.points, strict=True)},
            )
            for name, curve in deployment.curves.items()
        },
        sources={"source": SourceBehaviour(rates=((0.0, rows_per_s),), interarrival=Fixed(value=1.0))},
    )
    cluster = msgspec.structs.replace(behaviour.cluster, places=places, pooled_cores=True)
    return SimulatedEngine(flow, behaviour.replace(cluster=cluster), plan=plan, seed=1)
