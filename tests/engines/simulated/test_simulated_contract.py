"""The simulated engine passes the engine contract in each of its modes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.ports import RunnableEngine
from penstock.engines.simulated import (
    Behaviour,
    ChangePause,
    Exponential,
    Fixed,
    Mode,
    OperatorBehaviour,
    SimulatedEngine,
)
from penstock.engines.simulated import SourceBehaviour as Source
from tests.support.engine_contract import CHECKS, Subject

BEHAVIOUR = Behaviour(
    operators={
        "double": OperatorBehaviour(service_s=Exponential(mean=0.001)),
        "count": OperatorBehaviour(service_s=Exponential(mean=0.002)),
    },
    sources={"numbers": Source(interarrival=Fixed(value=1.0))},
    change=ChangePause(fixed_s=0.3),
)


def flow(rows: int, rows_per_s: float) -> Dataflow:
    flow = penstock.Dataflow("small")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=rows, rows_per_s=rows_per_s))
    numbers.stateless("double", lambda df: df).keyed("count", lambda df: df, keys=["m"]).sink("out", penstock.noop())
    return flow


def pass_time(engine: RunnableEngine) -> None:
    assert isinstance(engine, SimulatedEngine)
    engine.clock.sleep(0.2)


def delivered(engine: RunnableEngine) -> int:
    assert isinstance(engine, SimulatedEngine)
    return round(engine.simulation.counts.latency_sums[0])


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("check", CHECKS)
def test_contract(check: Callable[[Subject], None], mode: Mode) -> None:
    def engine(flow: Dataflow) -> RunnableEngine:
        return SimulatedEngine(flow, BEHAVIOUR, mode=mode)

    check(Subject(flow=flow, engine=engine, pass_time=pass_time, delivered=delivered))
