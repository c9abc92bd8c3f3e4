"""Plan changes and executor failures: no row is lost or duplicated, and each takes the configured time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.apps.nexmark import q5
from penstock.dataflow import Dataflow, PlanError
from penstock.engines.simulated import (
    Behaviour,
    ChangePause,
    Exponential,
    Fixed,
    Gamma,
    OperatorBehaviour,
    Queue,
    SimulatedBatchCosts,
    SimulatedCluster,
    SimulatedEngine,
)
from penstock.plan import Plan, required_cuts
from tests.support.simulated_flows import MODES, assert_conserved, chain, plan_for


def plan_with_cuts(flow: Dataflow, replicas: dict[str, int], cuts: set[str], slots: int) -> Plan:
    all_cuts = frozenset(cuts | required_cuts(flow, replicas).keys())
    return Plan(dataflow=flow.name, cuts=all_cuts, replicas=replicas, slots=slots)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_plan_changes_and_executor_failures_neither_lose_nor_duplicate_rows(data: st.DataObject) -> None:
    flow = chain("a", "b", "c", rows=300, rows_per_s=100.0)
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Exponential(mean=0.02), selectivity=Fixed(value=2.0)),
            "b": OperatorBehaviour(
                service_s=Gamma(mean=0.01, scv=0.3), buffer_rows=data.draw(st.sampled_from([None, 2]))
            ),
            "c": OperatorBehaviour(service_s=Exponential(mean=0.01), queue=data.draw(st.sampled_from(list(Queue)))),
        },
        cluster=SimulatedCluster(slots_per_executor=2, start_up_s=0.5),
        change=ChangePause(fixed_s=0.1),
    )
    mode = data.draw(st.sampled_from(MODES))
    engine = SimulatedEngine(
        flow, behaviour, plan=plan_for(flow, slots=4), mode=mode, seed=data.draw(st.integers(0, 99))
    )
    engine.start()
    plans = st.builds(
        plan_with_cuts,
        st.just(flow),
        st.fixed_dictionaries({name: st.integers(1, 4) for name in engine.plan.replicas}),
        st.sets(st.sampled_from(["source", "a", "b", "c"])),
        st.integers(1, 8),
    )
    for _ in range(data.draw(st.integers(1, 4))):
        engine.advance(data.draw(st.floats(0.0, 1.0)))
        if data.draw(st.booleans()):
            engine.fail_executor(0)
        else:
            engine.apply(data.draw(plans))
        assert_conserved(engine)
    for _ in range(200):
        if engine.idle():
            break
        engine.advance(1.0)
    window = engine.observe()
    assert [window.operator(name).rows_in_total for name in ("a", "b", "c", "out")] == [300, 600, 600, 600]


@pytest.mark.parametrize("mode", MODES)
def test_executors_need_their_start_up_time_and_their_failure_reduces_throughput(mode: str) -> None:
    flow = chain("a", rows_per_s=300.0)
    behaviour = Behaviour(
        operators={"a": OperatorBehaviour(service_s=Exponential(mean=0.01))},
        cluster=SimulatedCluster(slots_per_executor=1, start_up_s=20.0, max_executors=4),
        change=ChangePause(fixed_s=0.0),
        batch=SimulatedBatchCosts(max_rows=200),
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, slots=2, a=2), mode=mode)
    engine.start()

    def rate() -> float:
        engine.observe()
        engine.advance(10.0)
        return engine.observe().operator("a").processed_rows_per_s or 0.0

    assert rate() == pytest.approx(200, rel=0.25)
    engine.observe()
    applied = engine.apply(plan_for(flow, slots=4, a=4))
    assert applied.took_s == 20.0  # the old plan continued during the start-up
    assert engine.observe().operator("a").processed_rows_per_s == pytest.approx(200, rel=0.25)
    assert rate() > 270
    engine.advance(60.0)
    engine.fail_executor(0)
    engine.fail_executor(1)
    assert rate() < 230
    with pytest.raises(penstock.PlanError, match="the cluster has at most 4"):
        engine.apply(plan_for(flow, slots=5, a=4))


@pytest.mark.parametrize("mode", MODES)
def test_the_pause_of_a_change_grows_with_the_moved_state(mode: str) -> None:
    flow = chain("a", "b", rows_per_s=100.0)
    behaviour = Behaviour(
        operators={"b": OperatorBehaviour(service_s=Fixed(value=0.001), state_rows=6_000, state_bytes=200_000_000)},
        change=ChangePause(fixed_s=1.0, seconds_per_state_mb=0.05),
    )
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow), mode=mode, epoch_s=1e9)
    engine.start()
    engine.advance(10.0)
    small = engine.apply(penstock.rescaled(flow, engine.plan, {"a": 2}))
    assert (small.pause_s, engine.clock.time(), small.stopped) == (1.0, 1e9 + 11.0, ("a",))
    large = engine.apply(penstock.rescaled(flow, engine.plan, {"b": 2}))
    assert large.pause_s == pytest.approx(11.0) and engine.now_s == pytest.approx(22.0)
    engine.advance(20.0)
    window = engine.observe()
    assert (window.operator("b").state_rows, window.operator("b").state_bytes) == (6_000, 200_000_000)
    # From 1 to 2 replicas, consistent hashing moves half of the keys. Spark writes all partitions anew.
    assert (small.moved_rows, large.moved_rows) == (0.0, 6_000.0 if mode == "micro-batch" else 3_000.0)
    assert large.moved_bytes == (200e6 if mode == "micro-batch" else 100e6)
    assert window.latency is not None and window.latency.p99_s > 5.0  # rows waited for the change


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_change_is_rolled_back(mode: str) -> None:
    flow = chain("a", rows=1_000, rows_per_s=100.0)
    engine = SimulatedEngine(flow, Behaviour(), plan=plan_for(flow), mode=mode)
    engine.start()
    engine.advance(2.0)
    before = engine.plan
    engine.fail_next_change("no space left")
    with pytest.raises(penstock.PenstockError, match="no space left. The old plan is active again"):
        engine.apply(penstock.rescaled(flow, before, {"a": 2}))
    assert engine.plan == before and engine.generation == 1
    engine.advance(30.0)
    assert engine.idle()
    assert engine.observe().operator("out").rows_in_total == 1_000


@pytest.mark.parametrize("mode", MODES)
def test_states_that_a_cut_has_separated_are_not_merged(mode: str) -> None:
    flow = q5.flow(rows=100, rows_per_s=100.0)
    engine = SimulatedEngine(flow, Behaviour(), mode=mode)
    engine.start()
    together = engine.plan
    apart = engine.apply(penstock.rescaled(flow, together, {"hottest": 1})).plan
    assert apart.cuts == {"count"}
    with pytest.raises(PlanError, match='removes the cut after "count"'):
        engine.apply(together)
    assert engine.plan == apart
