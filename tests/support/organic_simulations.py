"""Organic adaptation in simulation. Row by row, a pipeline is a thread, and queues between threads are bounded."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace

import msgspec

from penstock.apps import joker
from penstock.control.controller import Settings
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic import Organic
from penstock.control.simulation import Duration, simulate
from penstock.control.topology import Topology
from penstock.dataflow import Dataflow, Kind, regions
from penstock.engines.simulated import SimulatedEngine, ThreadCosts
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.measure.smoothing import MovingAverage
from penstock.plan import Plan, default_plan
from penstock.store import DecisionRecord, Store

PERIOD_S, WINDOWS = 10.0, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """What happened: the applied changes, and the throughput of the first operator in each window."""

    flow: Dataflow
    changes: list[DecisionRecord]
    rows_per_s: list[float]
    completed_per_s: list[float]  # rows that reach the sinks
    mode: str
    plan: Plan
    last_hold: str | None

    @property
    def used_slots(self) -> list[int]:
        topology, micro_batch = Topology.of(self.flow), self.mode == "micro-batch"
        return [topology.slots(row.new, micro_batch=micro_batch) for row in self.changes if row.new is not None]

    @property
    def kept(self) -> list[DecisionRecord]:
        """Return the changes that were kept, without returns to an earlier plan."""
        return [row for row in self.changes if row.verdict == "kept" and row.reason_code != "roll-back"]


def ones(flow: Dataflow) -> dict[str, int]:
    """Return one replica per region."""
    return {region.name: 1 for region in regions(flow) if region.kind is not Kind.SOURCE}


def adaptation(
    flow: Dataflow,
    parameters: AdaptationParameters,
    *,
    rows_per_s: float | tuple[tuple[float, float], ...],
    multiplication_s: float,
    periods: int,
    slots: int = 24,
    thread: ThreadCosts | None = None,
    seed: int = 0,
    mode: str = "row-by-row",
) -> Adaptation:
    """Simulate a dataflow from one pipeline and one replica per region; `rows_per_s` may be (second, rate) pairs."""
    steps = rows_per_s if isinstance(rows_per_s, tuple) else ((0.0, rows_per_s),)
    behaviour = joker.behaviour(flow, multiplication_s=multiplication_s, rows_per_s=steps[0][1], thread=thread)
    sources = {name: msgspec.structs.replace(source, rates=steps) for name, source in behaviour.sources.items()}
    if mode == "micro-batch":
        behaviour = behaviour.replace(thread=ThreadCosts(), batch=SimulatedBatchCosts(target_s=1.0))
    engine = SimulatedEngine(
        flow,
        behaviour.replace(sources=sources),
        plan=default_plan(flow, slots=slots, replicas=ones(flow)),
        seed=seed,
        mode=mode,
    )
    settings = Settings(
        mode="active", smoothing=MovingAverage(WINDOWS), warm_up_s=2.0, micro_batch=mode == "micro-batch"
    )
    window_s = PERIOD_S / WINDOWS
    with tempfile.TemporaryDirectory() as directory, Store(directory) as store:
        summary, changes = simulate(
            Organic(replace(parameters, period_s=PERIOD_S)),
            engine,
            store,
            settings,
            clock=engine.clock,
            duration=Duration(windows=periods * WINDOWS, window_s=window_s),
        )
        first = next(operator.name for operator in flow.operators if operator.kind is not Kind.SOURCE)
        sinks = [operator.name for operator in flow.operators if operator.kind is Kind.SINK]
        completed = [
            sum(window.operator(name).processed_rows_per_s or 0.0 for name in sinks) for _, window in store.windows()
        ]
        rates = [window.operator(first).processed_rows_per_s or 0.0 for _, window in store.windows()]
    return Adaptation(
        flow=flow,
        changes=changes,
        rows_per_s=rates,
        completed_per_s=completed,
        mode=mode,
        plan=engine.plan,
        last_hold=summary.last_hold,
    )
