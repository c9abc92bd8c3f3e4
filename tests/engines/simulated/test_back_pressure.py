"""Bounded buffers: whoever waits for room gets it, and a full buffer costs the throughput that theory says."""

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


def two(rows: int | None = None) -> Dataflow:
    flow = penstock.Dataflow("two")
    numbers = flow.source("source", penstock.generate(int, schema="n bigint", rows=rows, rows_per_s=100.0))
    numbers.stateless("a", lambda df: df).keyed("b", lambda df: df, keys=["m"]).sink("out", penstock.noop())
    return flow


def test_both_sides_of_a_join_get_the_room_that_is_there() -> None:
    """A row that waits for its pair takes no room: the side that it waits for must not wait for that."""
    flow = joined(rows=300)
    match = OperatorBehaviour(service_s=Exponential(mean=0.03), pairs=True, buffer_rows=1)
    engine = SimulatedEngine(flow, Behaviour(operators={"match": match}), plan=plan_for(flow))
    engine.start()
    engine.advance(60.0)  # 300 pairs take 9 s
    assert engine.idle() and engine.observe().operator("out").rows_in_total == 300


@pytest.mark.parametrize("keys", [0, 50])
def test_nobody_waits_for_room_that_an_idle_replica_has(keys: int) -> None:
    flow = two(rows=1_000)
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
        engine.advance(300.0)  # 30 s for one replica alone
        assert engine.idle() and engine.observe().operator("out").rows_in_total == 1_000, seed


@pytest.mark.parametrize(("buffer", "first_per_s", "then_per_s"), [(1, 1.0, 1.0), (3, 1.0, 1.5), (2, 2.0, 1.0)])
def test_two_stations_and_a_full_buffer(buffer: int, first_per_s: float, then_per_s: float) -> None:
    """Blocking after service, rows without end: the second has 0 .. buffer + 2 rows, a birth and death process."""
    operators = {
        "a": OperatorBehaviour(service_s=Exponential(mean=1 / first_per_s), buffer_rows=1),
        "b": OperatorBehaviour(service_s=Exponential(mean=1 / then_per_s), buffer_rows=buffer),
    }
    behaviour = Behaviour(operators=operators, sources={"source": SourceBehaviour(rates=((0.0, 10.0),))})
    flow = two()
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow), seed=1)
    engine.start()
    engine.advance(40_000.0)
    weights = [(first_per_s / then_per_s) ** rows for rows in range(buffer + 3)]
    expected = then_per_s * (1 - weights[0] / sum(weights))
    assert engine.observe().operator("b").processed_rows_per_s == pytest.approx(expected, rel=0.02)
