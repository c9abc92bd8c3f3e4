"""Small dataflows for simulation. Operators have different keys, so each of them has its own replicas."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

import penstock
from penstock.dataflow import Dataflow, Kind, regions
from penstock.engines.simulated import SimulatedEngine
from penstock.plan import Plan, default_plan

MODES = ["row-by-row", "micro-batch"]


def chain(*names: str, rows: int | None = None, rows_per_s: float | None = 1.0) -> Dataflow:
    """Return the dataflow source -> names... -> out."""
    flow = penstock.Dataflow("chain")
    stream = flow.source("source", penstock.generate(int, schema="n bigint", rows=rows, rows_per_s=rows_per_s))
    for name in names:
        stream = stream.keyed(name, lambda df: df, keys=[f"key_{name}" if name != names[0] else "n"])
    stream.sink("out", penstock.noop())
    return flow


def looped() -> Dataflow:
    """Return the dataflow source -> a -> b -> out with a loop from b to a."""
    flow = penstock.Dataflow("looped")
    back = flow.feedback("back", schema="n bigint")
    first = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=1.0))
    a = flow.stateless("a", lambda df: df, inputs=[first, back])
    b = a.keyed("b", lambda df: df, keys=["m"])
    b.feed(back)
    b.sink("out", penstock.noop())
    return flow


def joined(rows: int) -> Dataflow:
    """Return the dataflow (l, r) -> match -> out."""
    flow = penstock.Dataflow("joined")
    sides = [
        flow.source(name, penstock.generate(int, schema="n bigint", rows=rows, rows_per_s=50.0)) for name in ("l", "r")
    ]
    flow.keyed("match", lambda left, right: left, keys=["n"], inputs=sides).sink("out", penstock.noop())
    return flow


def plan_for(flow: Dataflow, slots: int = 64, **replicas: int) -> Plan:
    return default_plan(flow, slots=slots, replicas=dict.fromkeys(_regions(flow), 1) | replicas)


def _regions(flow: Dataflow) -> list[str]:
    return [region.name for region in regions(flow) if region.kind != "source"]


def mean_latency_s(
    engine: SimulatedEngine, *, warm_up_s: float, window_s: float, windows: int = 20
) -> tuple[float, float]:
    """Return the mean latency and half the width of its 99.9 % confidence interval (method of batch means)."""
    engine.start()
    engine.advance(warm_up_s)
    engine.observe()
    means = []
    for _ in range(windows):
        engine.advance(window_s)
        latency = engine.observe().latency
        assert latency is not None
        means.append(latency.mean_s)
    half = student.ppf(0.9995, windows - 1) * np.std(means, ddof=1) / np.sqrt(windows)
    return float(np.mean(means)), float(half)


def assert_conserved(engine: SimulatedEngine) -> None:
    """Assert that every row that was sent to an operator was processed, is waiting or is in service."""
    counts, waiting, in_service = (
        engine.simulation.counts.operators,
        engine.simulation.waiting_rows(),
        engine.simulation.in_service_rows(),
    )
    index = {operator.name: i for i, operator in enumerate(engine.flow.operators)}
    for operator in engine.flow.operators:
        at = index[operator.name]
        accounted = counts["rows_in"][at] + waiting[at] + in_service[at]
        sent = sum(int(counts["rows_out"][index[name]]) for name in operator.inputs)
        if operator.kind is Kind.SOURCE:
            assert counts["arrived"][at] == accounted
        else:
            assert accounted <= sent <= accounted + 20  # blocked replicas may hold some rows
