"""Bundles that share a slot, and replicas with different bundles, against closed forms.

The curves are the published ones of the parser and of the table lookup.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.simulated import Behaviour, Exponential, Mode, OperatorBehaviour, SimulatedEngine
from penstock.engines.simulated.behaviour import SimulatedBatchCosts, SourceBehaviour
from penstock.models.curve import CurvePoint
from penstock.plan import ExecutorGroup, Plan

PARSE = {"1": CurvePoint(rows_per_s=310, cpu=84.69, memory=35.63)}
TABLE = {
    "1": CurvePoint(rows_per_s=3, cpu=1.02, memory=1.15),
    "40": CurvePoint(rows_per_s=20, cpu=26.53, memory=9.20),
    "50": CurvePoint(rows_per_s=30, cpu=38.78, memory=12.64),
    "60": CurvePoint(rows_per_s=40, cpu=54.08, memory=16.09),
}
BOTH_MODES = [Mode.ROW_BY_ROW, Mode.FLUID]


def flow_of(*names: str) -> Dataflow:
    """A source for each of these operators, which then do not limit each other."""
    flow = penstock.Dataflow("shared")
    for name in names:
        source = flow.source(f"{name}_source", penstock.generate(int, schema="n bigint", rows_per_s=1))
        source.rows(name, lambda row: row, "n bigint", threads=1).sink(f"{name}_out", penstock.noop())
    return flow


def engine_for(
    flow: Dataflow,
    plan: Plan,
    rates: dict[str, float],
    mode: Mode,
    places: dict[str, tuple[int, ...]] | None = None,
    **cluster_options: Any,
) -> SimulatedEngine:
    curves = {"parse": PARSE, "table": TABLE}
    behaviour = Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Exponential(mean=1 / curve["1"].rows_per_s), curve=curve)
            for name, curve in curves.items()
            if name in flow
        },
        sources={name: SourceBehaviour(rates=((0.0, rate),)) for name, rate in rates.items()},
        batch=SimulatedBatchCosts(batch_s=0.01, task_s=0.0, target_s=20.0),
    )
    cluster = msgspec.structs.replace(behaviour.cluster, places=places or {}, **cluster_options)
    engine = SimulatedEngine(flow, behaviour.replace(cluster=cluster), plan=plan, mode=mode)
    engine.start()
    return engine


def processed(engine: SimulatedEngine, operator: str, seconds: float = 400.0) -> float:
    engine.advance(60.0)
    engine.observe()
    engine.advance(seconds)
    rows_per_s = engine.observe().operator(operator).processed_rows_per_s
    assert rows_per_s is not None
    return rows_per_s


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_bundles_that_need_more_than_a_core_share_it(mode: Mode) -> None:
    """50 waiting threads take 38.78 % of the core, and the parser 84.69 %: both get 1 / 1.2347 of their rate."""
    flow = flow_of("parse", "table")
    plan = Plan(dataflow="shared", replicas={"parse": 1, "table": 1}, threads={"parse": 1, "table": 50}, slots=1)
    saturated = {"parse_source": 2_000.0, "table_source": 200.0}
    engine = engine_for(flow, plan, saturated, mode)
    engine.advance(60.0)
    engine.observe()
    engine.advance(200.0)
    window = engine.observe()
    assert window.operator("parse").processed_rows_per_s == pytest.approx(310 / 1.2347, rel=0.02)
    assert window.operator("table").processed_rows_per_s == pytest.approx(30 / 1.2347, rel=0.02)
    # Alone, or with little work on the slot, each reaches the peak of its curve.
    assert processed(engine_for(flow, plan, saturated | {"table_source": 0.0}, mode), "parse") == pytest.approx(
        310, rel=0.02
    )
    small = engine_for(flow, plan, saturated | {"parse_source": 20.0}, mode)
    assert processed(small, "table") == pytest.approx(30, rel=0.05)


@pytest.mark.parametrize("mode", [*BOTH_MODES, Mode.MICRO_BATCH])
def test_the_operators_of_a_station_have_their_own_curves(mode: Mode) -> None:
    """A row takes 1/310 s of a slot at the parser and 1/30 s at the table lookup with 50 threads."""
    flow = penstock.Dataflow("shared")
    source = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=1))
    parsed = source.rows("parse", lambda row: row, "n bigint")
    parsed.rows("table", lambda row: row, "n bigint", threads=1).sink("out", penstock.noop())
    plan = Plan(dataflow="shared", replicas={"parse": 1}, threads={"table": 50}, slots=1)
    engine = engine_for(flow, plan, {"source": 500.0}, mode)
    assert processed(engine, "table", 2_000.0) == pytest.approx(1 / (1 / 310 + 1 / 30), rel=0.03)


SHARES = [
    ({"table": (40.0, 40.0, 20.0)}, "capacity", 100.0),  # each replica gets what it sustains
    ({}, "capacity", 20.0 / 0.25),  # as in Storm, by threads: a quarter of the rows for 20 rows/s
    ({}, "even", 20.0 * 3),
]


@pytest.mark.parametrize("mode", [*BOTH_MODES, Mode.MICRO_BATCH])
@pytest.mark.parametrize(("rates", "routing", "sustained"), SHARES)
def test_shares_decide_what_bundles_sustain(
    mode: Mode, rates: dict[str, tuple[float, ...]], routing: str, sustained: float
) -> None:
    """The backlog stays below the sustained rate, and grows by the excess of the smallest bundle above it."""
    flow = flow_of("table")
    plan = Plan(dataflow="shared", replicas={"table": 3}, threads={"table": (60, 60, 40)}, slots=3)
    plan = plan.replace(rates=rates, routing=routing)  # type: ignore[arg-type]
    engine = engine_for(flow, plan, {"table_source": 0.9 * sustained}, mode)
    assert processed(engine, "table", 2_000.0) == pytest.approx(0.9 * sustained, rel=0.03)
    if mode is Mode.MICRO_BATCH:  # a batch takes as long as its slowest task
        engine = engine_for(flow, plan, {"table_source": 3 * sustained}, mode)
        assert processed(engine, "table", 2_000.0) == pytest.approx(sustained, rel=0.05)
    else:
        engine.set_rate("table_source", 1.1 * sustained)
        engine.advance(2_000.0)
        backlog = engine.observe().operator("table").backlog_rows
        assert backlog is not None and backlog >= 0.05 * sustained * 20.0 / 100.0 * 2_000.0


def test_places_and_groups_decide_who_shares_a_slot() -> None:
    flow = flow_of("parse", "table")
    plan = Plan(dataflow="shared", replicas={"parse": 1, "table": 1}, threads={"parse": 1, "table": 60}, slots=3)
    rates = {"parse_source": 2_000.0, "table_source": 200.0}
    together = engine_for(flow, plan, rates, Mode.FLUID, {"parse": (2,), "table": (2,)})
    assert processed(together, "parse") == pytest.approx(310 / (0.8469 + 0.5408), rel=0.01)
    pooled = engine_for(flow, plan, rates, Mode.FLUID, {"parse": (2,), "table": (2,)}, pooled_cores=True)
    assert processed(pooled, "parse") == pytest.approx(310, rel=0.01)  # the executor has four cores
    apart = plan.replace(groups={"table": ExecutorGroup(operators=("table",), slots=1)})
    assert processed(engine_for(flow, apart, rates, Mode.FLUID), "parse") == pytest.approx(310, rel=0.01)


def test_places_that_do_not_fit_are_refused() -> None:
    flow = flow_of("table")
    plan = Plan(dataflow="shared", replicas={"table": 2}, threads={"table": 1}, slots=2)
    with pytest.raises(penstock.PenstockError, match="1 places for 'table', which has 2 replicas"):
        engine_for(flow, plan, {}, Mode.FLUID, {"table": (0,)})
