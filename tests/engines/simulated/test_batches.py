"""Micro-batch mode against the model of a query: D* = A / (1 - lambda C), latency 1.5 D*."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.engines.batch_size import MAX_STRETCH
from penstock.engines.simulated import (
    Behaviour,
    BehaviourError,
    Exponential,
    Fixed,
    OperatorBehaviour,
    Poisson,
    SimulatedBatchCosts,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.measure.window import Window
from penstock.models.microbatch import MicroBatch, MicroBatchQuery, QueryStage
from tests.support.simulated_flows import chain, joined, plan_for


def steady_window(engine: SimulatedEngine, seconds: float = 2_000.0) -> Window:
    engine.start()
    engine.advance(seconds / 4)
    engine.observe()
    engine.advance(seconds)
    return engine.observe()


@pytest.mark.parametrize(("replicas", "slots"), [(3, 16), (6, 16), (12, 16), (12, 4)])
def test_one_stage_reaches_the_batch_duration_of_the_model(replicas: int, slots: int) -> None:
    flow = chain("work")
    behaviour = Behaviour(
        operators={"work": OperatorBehaviour(service_s=Fixed(value=0.001))},
        sources={"source": SourceBehaviour(rates=((0.0, 2_000.0),))},
        batch=SimulatedBatchCosts(batch_s=0.1, task_s=0.02),
    )
    plan = plan_for(flow, slots=slots, work=replicas)
    window = steady_window(SimulatedEngine(flow, behaviour, plan=plan, mode="micro-batch"))
    model = MicroBatch(arrival_per_s=2_000.0, batch_s=0.1, row_s=0.001, replica_s=0.02, slots=slots)
    assert window.latency is not None
    assert window.pipelines[0].batch_s == pytest.approx(model.steady_batch_s(replicas), rel=0.01)
    assert window.latency.mean_s == pytest.approx(1.5 * (window.pipelines[0].batch_s or 0), rel=0.02)
    assert window.operator("work").seconds_per_row == pytest.approx(0.001, rel=0.01)


def test_two_stages_in_one_query() -> None:
    flow = penstock.Dataflow("stages")
    numbers = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=500.0))
    numbers.stateless("parse", lambda df: df).keyed("count", lambda df: df, keys=["word"]).sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={
            "parse": OperatorBehaviour(service_s=Fixed(value=0.001), selectivity=Poisson(mean=3.0)),
            "count": OperatorBehaviour(service_s=Exponential(mean=0.0005)),
        },
        batch=SimulatedBatchCosts(batch_s=0.2, task_s=0.01),
    )
    replicas = {"parse": 2, "count": 4}
    window = steady_window(
        SimulatedEngine(flow, behaviour, plan=plan_for(flow, slots=8, **replicas), mode="micro-batch")
    )
    stages = (QueryStage(name="parse", visits=1.0, row_s=0.001), QueryStage(name="count", visits=3.0, row_s=0.0005))
    model = MicroBatchQuery(batch_s=0.2, replica_s=0.01, slots=8, stages=stages)
    assert len(window.pipelines) == 1
    assert window.pipelines[0].batch_s == pytest.approx(model.steady_batch_s(500.0, replicas), rel=0.03)
    assert window.operator("parse").selectivity == pytest.approx(3.0, rel=0.01)


def test_a_slow_query_behind_a_cut_delays_only_itself() -> None:
    flow = chain("fast", "slow", rows_per_s=100.0)
    behaviour = Behaviour(
        operators={
            "fast": OperatorBehaviour(service_s=Fixed(value=0.001)),
            "slow": OperatorBehaviour(service_s=Fixed(value=0.02)),
        },
        batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, trigger_s=0.5),
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, slots=4), mode="micro-batch")
    window = steady_window(engine, 200.0)
    fast, slow = window.pipelines
    assert fast.backlog_rows is not None and slow.backlog_rows is not None
    assert fast.backlog_rows <= 110 and slow.backlog_rows > 1_000
    assert window.operator("slow").processed_rows_per_s == pytest.approx(50.0, rel=0.1)
    assert fast.batches == pytest.approx(400, abs=3)  # one per trigger interval


def test_queries_share_slots_fairly() -> None:
    flow = penstock.Dataflow("two")
    for name in ("a", "b"):
        numbers = flow.source(f"source_{name}", penstock.generate(int, schema="n bigint", rows_per_s=1_000.0))
        numbers.stateless(name, lambda df: df).sink(f"out_{name}", penstock.noop())
    service = OperatorBehaviour(service_s=Fixed(value=0.01))
    behaviour = Behaviour(operators={"a": service, "b": service}, batch=SimulatedBatchCosts(task_s=0.0, max_rows=200))
    window = steady_window(
        SimulatedEngine(flow, behaviour, plan=plan_for(flow, slots=4, a=4, b=4), mode="micro-batch"), 500.0
    )
    rates = [window.operator(name).processed_rows_per_s or 0.0 for name in ("a", "b")]
    assert rates[0] == pytest.approx(rates[1], rel=0.1)
    assert 300 < sum(rates) <= 401  # 4 slots of 100 rows/s; they are idle while batches are planned


def test_pairing_is_refused() -> None:
    from tests.support.simulated_flows import joined

    flow = joined(rows=5)
    behaviour = Behaviour(operators={"match": OperatorBehaviour(pairs=True)})
    with pytest.raises(BehaviourError, match="pairs rows, which mode"):
        SimulatedEngine(flow, behaviour, plan=plan_for(flow), mode="micro-batch").start()


def overloaded(**costs: Any) -> tuple[penstock.Dataflow, Behaviour]:
    flow = chain("work")
    return flow, Behaviour(
        operators={"work": OperatorBehaviour(service_s=Exponential(mean=0.01))},
        sources={"source": SourceBehaviour(rates=((0.0, 300.0),))},
        batch=SimulatedBatchCosts(batch_s=0.1, task_s=0.02, **costs),
    )


@pytest.mark.parametrize("replicas", [4, 6, 12])
def test_a_stage_takes_as_long_as_its_slowest_task(replicas: int) -> None:
    """The variation of exponential service times makes batches up to twice as long."""
    flow, behaviour = overloaded()
    window = steady_window(SimulatedEngine(flow, behaviour, plan=plan_for(flow, work=replicas), mode="micro-batch"))
    without = MicroBatch(arrival_per_s=300.0, batch_s=0.1, row_s=0.01, replica_s=0.02)
    model = MicroBatch(arrival_per_s=300.0, batch_s=0.1, row_s=0.01, replica_s=0.02, spread_s=0.01)
    assert window.operator("work").service_scv == pytest.approx(1.0, rel=0.15)
    assert window.pipelines[0].batch_s == pytest.approx(model.steady_batch_s(replicas), rel=0.1)
    assert window.pipelines[0].batch_s > 1.15 * without.steady_batch_s(replicas)


def test_batches_are_limited_under_a_backlog() -> None:
    """One replica has work for three. Batches take the target duration, stretched because rows are always left over."""
    flow, behaviour = overloaded(target_s=2.0)
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, work=1), mode="micro-batch")
    window = steady_window(engine, 400.0)
    longest_s = MAX_STRETCH * 2.0
    assert window.pipelines[0].batch_s == pytest.approx(longest_s, rel=0.1)
    expected_rows_per_s = (longest_s - 0.12) / 0.01 / longest_s
    assert window.operator("work").processed_rows_per_s == pytest.approx(expected_rows_per_s, rel=0.1)
    assert window.pipelines[0].backlog_rows > 400 * 150
    for invalid, message in (
        (SimulatedBatchCosts(target_s=0.0), "target_s is 0"),
        (SimulatedBatchCosts(max_rows=-10), "max_rows is -10"),
    ):
        with pytest.raises(BehaviourError, match=message):
            SimulatedEngine(flow, behaviour.replace(batch=invalid))


def test_sources_of_a_query_share_its_batches() -> None:
    """An operator of at most 1,000 rows/s receives 1,200 rows/s: both sources have the same backlog."""
    flow = joined(rows=10**9)
    behaviour = Behaviour(
        operators={"match": OperatorBehaviour(service_s=Fixed(value=0.001))},
        sources={name: SourceBehaviour(rates=((0.0, 600.0),)) for name in ("l", "r")},
        batch=SimulatedBatchCosts(target_s=2.0),
    )
    window = steady_window(SimulatedEngine(flow, behaviour, plan=plan_for(flow, match=1), mode="micro-batch"), 400.0)
    left, right = (window.operator(name).backlog_rows or 0 for name in ("l", "r"))
    assert left > 1_000 and left == pytest.approx(right, rel=0.1)
