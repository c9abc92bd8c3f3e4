"""Organic adaptation of the Joker dataflows on the row-by-row simulator with 24 slots.

The unit of all costs is one multiplication. A thread spends X multiplications on each row that it takes from a queue, X
more for each doubling of the replicas if the row enters a region, and X / 5 on each row that it puts into the queue of
another pipeline. X was
calibrated with the first point of figure 5 only: fission alone reaches a speedup of 5 at 32 multiplications per row.
The ratios between the three costs were chosen before any other figure was computed. Queues hold 100 rows. Service times
vary a little (SCV 0.05): with constant times, two producers that share a full queue get unequal parts of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from tempfile import TemporaryDirectory

import msgspec

from penstock.apps import joker
from penstock.control.controller import Settings
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic import Organic
from penstock.control.policy import Policy
from penstock.control.simulation import Duration, simulate
from penstock.dataflow import Dataflow, Kind, regions
from penstock.engines.simulated import Gamma, SimulatedEngine, SourceBehaviour, ThreadCosts
from penstock.measure.smoothing import ExponentialSmoothing
from penstock.plan import Plan, default_plan
from penstock.store import DecisionRecord, Store

X = 8.5  # multiplications
SLOTS = 24
WINDOW_S, WINDOWS = 2.0, 5
PERIOD_S = WINDOW_S * WINDOWS  # the paper has 30 s; simulated costs do not vary, so 10 s suffice
STRICT = AdaptationParameters(strict=True, period_s=PERIOD_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """The result of an adaptation from one pipeline and one replica per region."""

    flow: Dataflow
    changes: list[DecisionRecord]
    rows_per_s: list[float]  # of all sources, in each window
    plan: Plan

    @property
    def speedup(self) -> float:
        """Return the final relative to the initial throughput; the first window fills empty queues."""
        return fmean(self.rows_per_s[-10:]) / self.rows_per_s[1]

    @property
    def kept(self) -> list[DecisionRecord]:
        return [row for row in self.changes if row.verdict == "kept" and row.reason_code != "roll-back"]

    @property
    def reverted(self) -> list[DecisionRecord]:
        return [row for row in self.changes if row.verdict == "rolled back"]

    def replicas(self, region: str) -> int:
        return self.plan.replicas[region]


def thread_costs(unit_s: float, x: float = X, distribution: float | None = None) -> ThreadCosts:
    """Return the costs of threads; `distribution` replaces X for each doubling of the replicas."""
    replica_s = (x if distribution is None else distribution) * unit_s
    return ThreadCosts(row_s=x * unit_s, replica_s=replica_s, send_s=x / 5 * unit_s, queue_rows=100)


def adapted(
    flow: Dataflow,
    parameters: AdaptationParameters = STRICT,
    *,
    work: float,
    periods: int = 70,
    rates: tuple[tuple[float, float], ...] | None = None,
    policy: Policy | None = None,
    x: float = X,
    distribution: float | None = None,
) -> Adapted:
    """Adapt a dataflow whose busiest thread has `work` multiplications per row at the start, which then take 10 ms.

    `rates` are (second, rows/s) pairs; default: more rows than 24 threads can process.
    """
    unit_s = 0.01 / (work + x)
    steps = rates or ((0.0, 3000.0),)
    behaviour = joker.behaviour(
        flow, multiplication_s=unit_s, rows_per_s=1.0, thread=thread_costs(unit_s, x, distribution)
    )
    operators = {
        name: msgspec.structs.replace(own, service_s=Gamma(mean=own.service_s.mean, scv=0.05))
        if own.service_s.mean > 0
        else own
        for name, own in behaviour.operators.items()
    }
    sources = {
        name: SourceBehaviour(rates=steps, interarrival=source.interarrival)
        for name, source in behaviour.sources.items()
    }
    ones = {region.name: 1 for region in regions(flow) if region.kind is not Kind.SOURCE}
    engine = SimulatedEngine(
        flow,
        behaviour.replace(operators=operators, sources=sources),
        plan=default_plan(flow, slots=SLOTS, replicas=ones),
    )
    smoothing = ExponentialSmoothing(alpha=1.0 - 2.0 / (WINDOWS + 1), min_windows=WINDOWS)
    with TemporaryDirectory() as directory, Store(directory) as store:
        _, changes = simulate(
            policy or Organic(replace(parameters, period_s=PERIOD_S)),
            engine,
            store,
            Settings(mode="active", smoothing=smoothing, warm_up_s=2.0),
            clock=engine.clock,
            duration=Duration(windows=periods * WINDOWS, window_s=WINDOW_S),
        )
        first = [
            consumer.name
            for operator in flow.operators
            if operator.kind is Kind.SOURCE
            for consumer in flow.consumers(operator.name)
        ]
        rows_per_s = [
            sum(window.operator(name).processed_rows_per_s or 0.0 for name in first) for _, window in store.windows()
        ]
    return Adapted(flow=flow, changes=changes, rows_per_s=rows_per_s, plan=engine.plan)
