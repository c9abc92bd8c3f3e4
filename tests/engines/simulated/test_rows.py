"""Conservation of rows, determinism, and features without closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import penstock
from penstock.engines.simulated import (
    Behaviour,
    BehaviourError,
    ChangePause,
    Exponential,
    Fixed,
    Gamma,
    OperatorBehaviour,
    Poisson,
    Queue,
    SimulatedCluster,
    SimulatedEngine,
    SourceBehaviour,
    Uniform,
)
from penstock.models.curve import CurvePoint
from penstock.plan import Plan
from tests.support.simulated_flows import MODES, assert_conserved, chain, joined, looped, plan_for


@pytest.mark.parametrize("mode", MODES)
def test_every_row_arrives_once(mode: str) -> None:
    flow = chain("a", "b", "c", rows=5_000, rows_per_s=400.0)
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Gamma(mean=0.004, scv=0.5), selectivity=Fixed(value=3.0)),
            "b": OperatorBehaviour(service_s=Exponential(mean=0.001), queue=Queue.REPLICA, keys=100, zipf=1.0),
            "c": OperatorBehaviour(service_s=Exponential(mean=0.001), buffer_rows=5),
        },
        change=ChangePause(fixed_s=0.5),
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, a=2, b=3, c=2), mode=mode, seed=5)
    engine.start()
    for replicas in ({"a": 4}, {"b": 1, "c": 1}, {"a": 1, "b": 5, "c": 3}):
        engine.advance(2.0)
        assert_conserved(engine)
        engine.apply(penstock.rescaled(flow, engine.plan, replicas))
        assert_conserved(engine)
    while not engine.idle():
        engine.advance(5.0)
    window = engine.observe()
    assert [window.operator(name).rows_in_total for name in ("source", "a", "b", "c", "out")] == [
        5_000,
        5_000,
        15_000,
        15_000,
        15_000,
    ]
    assert engine.simulation.counts.latency_sums[0] == 15_000


@pytest.mark.parametrize("mode", MODES)
def test_the_seed_determines_the_windows(mode: str) -> None:
    def windows(seed: int) -> list[object]:
        flow = chain("a", "b")
        behaviour = Behaviour(
            operators={"a": OperatorBehaviour(service_s=Exponential(mean=0.01), selectivity=Poisson(mean=1.5))},
            sources={"source": SourceBehaviour(rates=((0.0, 50.0), (10.0, 90.0)), repeat_s=20.0)},
            cluster=SimulatedCluster(mean_time_to_failure_s=8.0, start_up_s=1.0),
        )
        engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, a=2), mode=mode, seed=seed)
        engine.start()
        result: list[object] = []
        for step in range(6):
            engine.clock.sleep(5.0)
            result.append(engine.observe())
            if step == 2:
                engine.apply(penstock.rescaled(flow, engine.plan, {"a": 3}))
        return result

    assert windows(1) == windows(1)
    assert windows(1) != windows(2)


@pytest.mark.parametrize("mode", MODES)
def test_rates_follow_the_trace_and_can_be_set(mode: str) -> None:
    flow = chain("a")
    source = SourceBehaviour(
        rates=((0.0, 100.0), (10.0, 0.0), (20.0, 400.0)), interarrival=Fixed(value=1.0), repeat_s=30
    )
    engine = SimulatedEngine(flow, Behaviour(sources={"source": source}), plan=plan_for(flow), mode=mode)
    engine.start()
    rates = []
    for _ in range(6):
        engine.advance(10.0)
        rates.append(engine.observe().external_rows_per_s)
    assert rates == pytest.approx([100, 0, 400] * 2, abs=1.0)
    engine.set_rate("source", 0.0)
    engine.advance(100.0)
    assert engine.observe().external_rows_per_s == 0
    engine.set_rate("source", 30.0)
    engine.advance(100.0)
    assert engine.observe().external_rows_per_s == pytest.approx(30, abs=0.2)


def test_a_channel_is_unbounded() -> None:
    """The plan rules require a cut between two operators with state, and a cut removes the bound of the buffer."""
    flow = chain("a", "b", rows_per_s=100.0)
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Fixed(value=0.001), buffer_rows=10),
            "b": OperatorBehaviour(service_s=Fixed(value=0.1), buffer_rows=10),
        }
    )
    uncut = Plan(dataflow="chain", replicas={"a": 1, "b": 1}, cuts=frozenset(), slots=4)
    with pytest.raises(penstock.PlanError):
        SimulatedEngine(flow, behaviour, plan=uncut)
    engine = SimulatedEngine(flow, behaviour, plan=uncut.replace(cuts=frozenset({"a"})))
    engine.start()
    engine.advance(100.0)
    names = [operator.name for operator in flow.operators]
    waiting = dict(zip(names, engine.simulation.waiting_rows().tolist(), strict=True))
    assert waiting["b"] > 5_000 and waiting["source"] == 0


def test_a_full_buffer_blocks_upstream_operators() -> None:
    flow = penstock.Dataflow("bounded")
    numbers = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=100.0))
    numbers.stateless("a", lambda df: df).keyed("b", lambda df: df, keys=["m"]).sink("out", penstock.noop())
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Fixed(value=0.001), buffer_rows=7),
            "b": OperatorBehaviour(service_s=Fixed(value=0.1), buffer_rows=10),
        }
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow))
    engine.start()
    engine.advance(100.0)
    waiting = engine.simulation.waiting_rows().tolist()
    assert waiting[1:3] == [7, 10]  # both buffers are full; the other rows are in the source
    window = engine.observe()
    assert window.operator("b").processed_rows_per_s == pytest.approx(10, rel=0.02)
    assert window.operator("a").processed_rows_per_s == pytest.approx(10, rel=0.05)
    assert window.operator("source").backlog_rows == waiting[0] + 7 > 8_000
    assert_conserved(engine)


def test_a_join_that_pairs_waits_for_the_slower_side() -> None:
    flow = joined(rows=500)
    behaviour = Behaviour(
        operators={"match": OperatorBehaviour(service_s=Exponential(mean=0.001), pairs=True)},
        sources={"r": SourceBehaviour(rates=((0.0, 5.0),))},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow))
    engine.start()
    engine.advance(60.0)
    match = engine.observe().operator("match")
    assert match.rows_in_total is not None and match.rows_out_total is not None
    assert match.rows_in_total == 2 * match.rows_out_total
    assert match.rows_out_total == pytest.approx(300, abs=60)
    assert match.backlog_rows == 500 - match.rows_out_total
    engine.advance(200.0)
    assert engine.observe().operator("match").rows_out_total == 500


def test_skewed_keys_load_one_replica_more_than_the_others() -> None:
    def mean_latency_s(zipf: float) -> float:
        flow = chain("a")
        cost = OperatorBehaviour(service_s=Exponential(mean=0.01), keys=1_000, zipf=zipf)
        behaviour = Behaviour(operators={"a": cost}, sources={"source": SourceBehaviour(rates=((0.0, 200.0),))})
        engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, a=4))
        engine.start()
        engine.advance(200.0)
        latency = engine.observe().latency
        assert latency is not None
        return latency.mean_s

    assert mean_latency_s(0.0) < 0.05 and mean_latency_s(1.2) > 10 * mean_latency_s(0.0)


def test_replicas_on_one_slot_slow_down_by_their_curve() -> None:
    def cost_s(slots: int, **options: object) -> float | None:
        flow = chain("a", rows_per_s=10.0)
        behaviour = Behaviour(operators={"a": OperatorBehaviour(service_s=Fixed(value=0.01), **options)})  # type: ignore[arg-type]
        engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, slots=slots, a=4))
        engine.start()
        engine.advance(20.0)
        return engine.observe().operator("a").seconds_per_row

    curve = {
        "1": CurvePoint(rows_per_s=100, cpu=10, memory=1),
        "4": CurvePoint(rows_per_s=320, cpu=40, memory=1),
    }
    assert cost_s(4) == pytest.approx(0.01)
    assert cost_s(1) == pytest.approx(0.04)
    assert cost_s(1, curve=curve) == pytest.approx(0.01 * 4 * 100 / 320)


def test_a_loop_ends() -> None:
    flow = looped()
    behaviour = Behaviour(
        operators={"b": OperatorBehaviour(routes={"a": 0.5, "out": 0.5})},
        sources={"source": SourceBehaviour(rates=((0.0, 1000.0),), rows=2_000)},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow))
    engine.start()
    engine.advance(60.0)
    assert engine.idle()
    window = engine.observe()
    assert window.operator("out").rows_in_total == 2_000
    assert window.operator("a").rows_in_total == pytest.approx(4_000, rel=0.1)


def test_invalid_behaviour_is_refused() -> None:
    flow = chain("a")
    for behaviour, message in (
        (Behaviour(operators={"x": OperatorBehaviour()}), "'x', which is not an operator of dataflow 'chain'"),
        (Behaviour(sources={"a": SourceBehaviour()}), "'a', which is not a source"),
        (Behaviour(operators={"a": OperatorBehaviour(routes={"source": 0.5})}), "does not read it"),
        (Behaviour(sources={"source": SourceBehaviour(rates=((5.0, 1.0),))}), "must start at second 0"),
        (Behaviour(cluster=SimulatedCluster(mean_time_to_failure_s=0.0)), "mean_time_to_failure_s is 0"),
    ):
        with pytest.raises(BehaviourError, match=message):
            SimulatedEngine(flow, behaviour)
    with pytest.raises(BehaviourError, match="The text is not a behaviour"):
        Behaviour.from_json('{"operators": 3}')
    with pytest.raises(BehaviourError, match="a number from 0"):
        Exponential(mean=float("nan"))


def test_windows_are_adjacent_and_add_up() -> None:
    flow = chain("a", rows_per_s=50.0)
    engine = SimulatedEngine(flow, Behaviour(operators={"a": OperatorBehaviour(service_s=Fixed(value=0.01))}))
    engine.start()
    windows = []
    for _ in range(5):
        engine.advance(3.3)
        windows.append(engine.observe())
    assert [window.start_s for window in windows[1:]] == [window.end_s for window in windows[:-1]]
    a = [window.operator("a") for window in windows]
    assert np.cumsum([seen.rows_in or 0 for seen in a]).tolist() == [seen.rows_in_total for seen in a]
    assert a[-1].true_rows_per_s == pytest.approx(100.0)


def test_an_hour_without_rows_does_not_change_the_arrival_scv() -> None:
    flow = chain("a")
    behaviour = Behaviour(
        operators={"a": OperatorBehaviour(service_s=Fixed(value=0.01))},
        sources={"source": SourceBehaviour(rates=((0.0, 20.0), (100.0, 0.0), (3700.0, 20.0)))},
    )
    engine = SimulatedEngine(flow, behaviour)
    engine.start()
    scvs = []
    for _ in range(40):
        engine.advance(100.0)
        scvs.append(engine.observe().operator("a").arrival_scv)
    assert [scv for scv in scvs if scv is not None] == pytest.approx([1.0] * 4, abs=0.3)  # Poisson arrivals


def test_the_scv_of_arrivals_and_of_service_is_measured() -> None:
    """Gaps of U(0, 2m) have an SCV of 1/3. Five rows per gap G give E[g^2] = E[G^2] / 5, so the SCV is (4/3) 5 - 1."""
    flow = chain("first", "second")
    behaviour = Behaviour(
        operators={
            "first": OperatorBehaviour(service_s=Gamma(mean=0.001, scv=0.5), selectivity=Fixed(value=5.0)),
            "second": OperatorBehaviour(service_s=Exponential(mean=0.0001)),
        },
        sources={"source": SourceBehaviour(rates=((0.0, 10.0),), interarrival=Uniform(low=0.0, high=2.0))},
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow), seed=3)
    engine.start()
    engine.advance(100.0)
    engine.observe()
    engine.advance(4_000.0)
    window = engine.observe()
    first, second = window.operator("first"), window.operator("second")
    assert (first.arrival_scv, first.service_scv) == (pytest.approx(1 / 3, rel=0.05), pytest.approx(0.5, rel=0.05))
    assert (second.arrival_scv, second.service_scv) == (
        pytest.approx(4 / 3 * 5 - 1, rel=0.05),
        pytest.approx(1.0, rel=0.05),
    )
