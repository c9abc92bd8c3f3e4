"""Bounded buffers: blocked replicas get space as soon as there is some, and throughput follows the theory."""

from __future__ import annotations

import pytest

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    OperatorBehaviour,
    Queue,
    SimulatedEngine,
    SourceBehaviour,
)
from tests.support.simulated_flows import joined, plan_for


def two_stations(rows: int | None = None) -> Dataflow:
    flow = penstock.Dataflow("two")
    numbers = flow.source("source", penstock.generate(int, schema="n bigint", rows=rows, rows_per_s=100.0))
    numbers.stateless("a", lambda df: df).keyed("b", lambda df: df, keys=["m"]).sink("out", penstock.noop())
    return flow


def test_both_sides_of_a_join_get_the_free_space() -> None:
    """A row that waits for its pair takes no space, so the other side is not blocked by it."""
    flow = joined(rows=300)
    match = OperatorBehaviour(service_s=Exponential(mean=0.03), pairs=True, buffer_rows=1)
    engine = SimulatedEngine(flow, Behaviour(operators={"match": match}), plan=plan_for(flow))
    engine.start()
    engine.advance(60.0)  # 300 pairs take 9 s
    assert engine.idle() and engine.observe().operator("out").rows_in_total == 300


@pytest.mark.parametrize("keys", [0, 50])
def test_no_replica_is_blocked_while_a_consumer_is_idle(keys: int) -> None:
    flow = two_stations(rows=1_000)
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Exponential(mean=0.02)),
            "b": OperatorBehaviour(
                service_s=Exponential(mean=0.03), buffer_rows=1, queue=Queue.REPLICA, keys=keys, zipf=1.0
            ),
        }
    )
    for seed in range(8):
        engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, a=4, b=4), seed=seed)
        engine.start()
        engine.advance(300.0)  # one replica alone needs 30 s
        assert engine.idle() and engine.observe().operator("out").rows_in_total == 1_000, seed


@pytest.mark.parametrize(("buffer", "first_per_s", "then_per_s"), [(1, 1.0, 1.0), (3, 1.0, 1.5), (2, 2.0, 1.0)])
def test_throughput_of_two_stations_with_a_full_buffer(buffer: int, first_per_s: float, then_per_s: float) -> None:
    """Blocking after service with unlimited rows: the second station is a birth-death process of 0 to buffer + 2 rows."""
    operators = {
        "a": OperatorBehaviour(service_s=Exponential(mean=1 / first_per_s), buffer_rows=1),
        "b": OperatorBehaviour(service_s=Exponential(mean=1 / then_per_s), buffer_rows=buffer),
    }
    behaviour = Behaviour(operators=operators, sources={"source": SourceBehaviour(rates=((0.0, 10.0),))})
    flow = two_stations()
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow), seed=1)
    engine.start()
    engine.advance(40_000.0)
    weights = [(first_per_s / then_per_s) ** rows for rows in range(buffer + 3)]
    expected = then_per_s * (1 - weights[0] / sum(weights))
    assert engine.observe().operator("b").processed_rows_per_s == pytest.approx(expected, rel=0.02)
