"""Fluid mode: exact under overload, close to the closed forms below it, and close to row-by-row mode."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.engines.simulated import Behaviour, Exponential, OperatorBehaviour, SimulatedEngine, SourceBehaviour
from penstock.engines.simulated.behaviour import ChangePause
from penstock.measure.window import Window
from penstock.models.queueing import MMk
from tests.support.simulated_flows import chain, plan_for


def started(rate: float, replicas: int, mode: str = "fluid", buffer_rows: int | None = None) -> SimulatedEngine:
    flow = chain("work")
    cost = OperatorBehaviour(service_s=Exponential(mean=1.0), buffer_rows=buffer_rows)
    behaviour = Behaviour(operators={"work": cost}, sources={"source": SourceBehaviour(rates=((0.0, rate),))})
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, work=replicas), mode=mode)
    engine.start()
    return engine


def steady_window(rate: float, replicas: int, *, mode: str = "fluid", buffer_rows: int | None = None) -> Window:
    engine = started(rate, replicas, mode, buffer_rows)
    engine.advance(50.0)
    engine.observe()
    engine.advance(100.0)
    return engine.observe()


def first_window(rate: float, replicas: int, seconds: float) -> Window:
    engine = started(rate, replicas)
    engine.advance(seconds)
    return engine.observe()


@pytest.mark.parametrize(("replicas", "rate"), [(3, 2.0), (20, 16.0), (50, 46.0)])
def test_latency_is_close_to_mmk(replicas: int, rate: float) -> None:
    window = steady_window(rate, replicas)
    station = MMk(arrival_per_s=rate, service_per_s=1.0)
    assert window.latency is not None
    assert window.latency.mean_s == pytest.approx(station.mean_s(replicas), rel=0.03)
    assert window.latency.p95_s == pytest.approx(station.quantile_s(replicas, 0.95), rel=0.1)
    assert window.operator("work").utilisation == pytest.approx(rate / replicas, rel=1e-6)


def test_excess_load_becomes_backlog() -> None:
    window = steady_window(30.0, 20)
    assert window.operator("work").processed_rows_per_s == pytest.approx(20.0)
    assert window.operator("work").backlog_rows == pytest.approx(10.0 * 150.0, abs=2)
    assert window.operator("work").utilisation == pytest.approx(1.0)


def test_a_full_buffer_keeps_rows_in_the_source() -> None:
    window = steady_window(30.0, 20, buffer_rows=5)
    assert window.operator("work").processed_rows_per_s == pytest.approx(20.0, rel=0.01)
    assert window.operator("work").backlog_rows == pytest.approx(5, abs=2)
    assert window.operator("source").backlog_rows == pytest.approx(1_500, rel=0.01)


def test_row_by_row_mode_agrees() -> None:
    fluid, rows = (steady_window(46.0, 50, mode=mode) for mode in ("fluid", "row-by-row"))
    assert fluid.operator("work").utilisation == pytest.approx(rows.operator("work").utilisation or 0.0, rel=0.05)
    assert fluid.latency is not None and rows.latency is not None
    assert fluid.latency.mean_s == pytest.approx(rows.latency.mean_s, rel=0.15)


def test_latency_after_a_pause_agrees_with_row_by_row_mode() -> None:
    """Rows that arrive during a pause of 30 s wait for up to 30 s."""
    latencies = {}
    for mode in ("fluid", "row-by-row"):
        flow = chain("work")
        behaviour = Behaviour(
            operators={"work": OperatorBehaviour(service_s=Exponential(mean=1.0))},
            sources={"source": SourceBehaviour(rates=((0.0, 20.0),))},
            change=ChangePause(fixed_s=30.0),
        )
        engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, work=39), mode=mode)
        engine.start()
        engine.advance(50.0)
        engine.observe()
        engine.apply(plan_for(flow, work=40))
        engine.advance(70.0)
        latencies[mode] = engine.observe().latency
    fluid, rows = latencies["fluid"], latencies["row-by-row"]
    assert fluid is not None and rows is not None and rows.mean_s > 5.0
    assert fluid.mean_s == pytest.approx(rows.mean_s, rel=0.1)
    assert fluid.p95_s == pytest.approx(rows.p95_s, rel=0.2)


def test_cost_per_row_on_shared_slots_agrees_with_row_by_row_mode() -> None:
    costs = []
    for mode in ("fluid", "row-by-row"):
        flow = chain("work")
        behaviour = Behaviour(
            operators={"work": OperatorBehaviour(service_s=Exponential(mean=0.1))},
            sources={"source": SourceBehaviour(rates=((0.0, 15.0),))},
        )
        engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, slots=2, work=4), mode=mode)
        engine.start()
        engine.advance(500.0)
        costs.append(engine.observe().operator("work").seconds_per_row)
    assert costs[0] == pytest.approx(costs[1], rel=0.05)


@pytest.mark.parametrize(("replicas", "rate"), [(1, 2.0), (4, 6.0), (20, 30.0)])
def test_latency_above_saturation_is_the_age_of_the_backlog(replicas: int, rate: float) -> None:
    """A row that leaves at t arrived at t / rho: its latency is (1 - 1 / rho) t, on average (1 - 1 / rho) T / 2."""
    window = first_window(rate, replicas, 100.0)
    assert window.latency is not None
    assert window.latency.mean_s == pytest.approx(
        (1.0 - replicas / rate) * 50.0, abs=2.5
    )  # tolerance for service and random waiting
    assert window.latency.p99_s < 100.0


@pytest.mark.parametrize("seconds", [50.0, 400.0])
def test_random_waiting_at_saturation_grows_with_the_square_root_of_time(seconds: float) -> None:
    """The work of M/M/1 at a load of 1 is a reflected Brownian motion without drift and with variance 2 per second.

    Its mean is sqrt(4 t / pi). The average over T seconds is 2/3 of the value at T. The service time of 1 s is added.
    """
    latencies = [first_window(rate, 1, seconds).latency for rate in (1.0 - 1e-6, 1.0, 1.0 + 1e-6)]
    expected = 1.0 + math.sqrt(4.0 * seconds / math.pi) * 2.0 / 3.0
    assert [latency and latency.mean_s for latency in latencies] == pytest.approx([expected] * 3, rel=0.05)


def test_latency_is_continuous_at_saturation() -> None:
    latencies = [first_window(rate / 100.0, 1, 200.0).latency for rate in range(96, 105, 2)]
    means = np.array([latency.mean_s for latency in latencies if latency is not None])
    assert (np.diff(means) >= 0).all()
    assert np.diff(means).max() < 4.0  # the backlog of 0.02 x 200 s at the end alone contributes 2


def test_rows_between_stations_survive_a_plan_change() -> None:
    flow = chain("a", "b")
    cost = OperatorBehaviour(service_s=Exponential(mean=0.01))
    source = SourceBehaviour(rates=((0.0, 200.0),), rows=20_000)
    behaviour = Behaviour(operators={"a": cost, "b": cost}, sources={"source": source})
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, a=3, b=3), mode="fluid")
    engine.start()
    for replicas in (4, 5, 6, 3):
        engine.advance(10.025)
        engine.apply(plan_for(flow, a=replicas, b=3))
    while not engine.idle():
        engine.advance(10.0)
    counted = engine.simulation.counts.operators[[1, 2]]
    assert counted["arrived"].tolist() == counted["rows_in"].tolist() == [20_000] * 2
