"""The fluid: exact where load exceeds capacity, near the closed form where it does not, and near rows one by one."""

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


def seen(rate: float, replicas: int, *, mode: str = "fluid", buffer_rows: int | None = None) -> Window:
    engine = started(rate, replicas, mode, buffer_rows)
    engine.advance(50.0)
    engine.observe()
    engine.advance(100.0)
    return engine.observe()


def from_the_start(rate: float, replicas: int, seconds: float) -> Window:
    engine = started(rate, replicas)
    engine.advance(seconds)
    return engine.observe()


@pytest.mark.parametrize(("replicas", "rate"), [(3, 2.0), (20, 16.0), (50, 46.0)])
def test_latency_is_near_that_of_mmk(replicas: int, rate: float) -> None:
    window = seen(rate, replicas)
    station = MMk(arrival_per_s=rate, service_per_s=1.0)
    assert window.latency is not None
    assert window.latency.mean_s == pytest.approx(station.mean_s(replicas), rel=0.03)
    assert window.latency.p95_s == pytest.approx(station.quantile_s(replicas, 0.95), rel=0.1)
    assert window.operator("work").utilisation == pytest.approx(rate / replicas, rel=1e-6)


def test_what_exceeds_capacity_waits() -> None:
    window = seen(30.0, 20)
    assert window.operator("work").processed_rows_per_s == pytest.approx(20.0)
    assert window.operator("work").backlog_rows == pytest.approx(10.0 * 150.0, abs=2)
    assert window.operator("work").utilisation == pytest.approx(1.0)


def test_a_full_buffer_keeps_rows_in_the_source() -> None:
    window = seen(30.0, 20, buffer_rows=5)
    assert window.operator("work").processed_rows_per_s == pytest.approx(20.0, rel=0.01)
    assert window.operator("work").backlog_rows == pytest.approx(5, abs=2)
    assert window.operator("source").backlog_rows == pytest.approx(1_500, rel=0.01)


def test_rows_one_by_one_say_the_same() -> None:
    fluid, rows = (seen(46.0, 50, mode=mode) for mode in ("fluid", "row-by-row"))
    assert fluid.operator("work").utilisation == pytest.approx(rows.operator("work").utilisation or 0.0, rel=0.05)
    assert fluid.latency is not None and rows.latency is not None
    assert fluid.latency.mean_s == pytest.approx(rows.latency.mean_s, rel=0.15)


def test_what_piled_up_during_a_pause_has_waited() -> None:
    """Rows of a pause of 30 s have waited for up to 30 s, in the fluid as one by one."""
    found = {}
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
        found[mode] = engine.observe().latency
    fluid, rows = found["fluid"], found["row-by-row"]
    assert fluid is not None and rows is not None and rows.mean_s > 5.0
    assert fluid.mean_s == pytest.approx(rows.mean_s, rel=0.1)
    assert fluid.p95_s == pytest.approx(rows.p95_s, rel=0.2)


def test_replicas_that_share_a_slot_cost_as_much_as_one_by_one() -> None:
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
def test_above_saturation_rows_wait_for_the_backlog(replicas: int, rate: float) -> None:
    """A row that leaves at t came at t / rho, so that it stayed (1 - 1 / rho) t, over T seconds (1 - 1 / rho) T / 2."""
    window = from_the_start(rate, replicas, 100.0)
    assert window.latency is not None
    assert window.latency.mean_s == pytest.approx((1.0 - replicas / rate) * 50.0, abs=2.5)  # its service, and chance
    assert window.latency.p99_s < 100.0


@pytest.mark.parametrize("seconds", [50.0, 400.0])
def test_at_saturation_chance_builds_up_with_the_root_of_time(seconds: float) -> None:
    """The work of M/M/1 at a load of 1 is a reflected Brownian motion of variance 2 a second and without drift: its
    mean is sqrt(4 t / pi), over T seconds 2/3 of that at T. A service time of 1 s comes to it."""
    stays = [from_the_start(rate, 1, seconds).latency for rate in (1.0 - 1e-6, 1.0, 1.0 + 1e-6)]
    expected = 1.0 + math.sqrt(4.0 * seconds / math.pi) * 2.0 / 3.0
    assert [one and one.mean_s for one in stays] == pytest.approx([expected] * 3, rel=0.05)


def test_there_is_no_jump_at_saturation() -> None:
    stays = [from_the_start(rate / 100.0, 1, 200.0).latency for rate in range(96, 105, 2)]
    means = np.array([one.mean_s for one in stays if one is not None])
    assert (np.diff(means) >= 0).all()
    assert np.diff(means).max() < 4.0  # a backlog of 0.02 x 200 s at the end alone makes 2


def test_rows_between_stations_at_a_change_of_plan_arrive() -> None:
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
