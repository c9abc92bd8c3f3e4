"""Several threads per slot in all modes: against M/M/k, and against the curve of the operator."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    Mode,
    OperatorBehaviour,
    SimulatedBatchCosts,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.models.curve import CurvePoint
from penstock.models.queueing.mmk import MMk
from penstock.plan import Plan, default_plan, rescaled

CURVE = {
    "1": CurvePoint(rows_per_s=100, cpu=10, memory=1),
    "4": CurvePoint(rows_per_s=300, cpu=40, memory=1),
    "8": CurvePoint(rows_per_s=250, cpu=60, memory=1),
}


def calling(threads: int) -> Dataflow:
    flow = penstock.Dataflow("calls")
    source = flow.source("source", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=100))
    source.rows("call", lambda row: row, "n bigint", threads=threads).sink("out", penstock.noop())
    return flow


def engine_for(
    threads: int, rows_per_s: float, *, mode: Mode = Mode.ROW_BY_ROW, replicas: int = 1, slots: int = 1, **options: Any
) -> SimulatedEngine:
    flow = calling(threads)
    behaviour = Behaviour(
        operators={"call": OperatorBehaviour(**{"service_s": Fixed(value=0.01)} | options)},
        sources={"source": SourceBehaviour(rates=((0.0, rows_per_s),))},
        batch=SimulatedBatchCosts(batch_s=0.05, task_s=0.0, target_s=1.0),
    )
    plan: Plan = default_plan(flow, slots=slots, replicas={"call": replicas})
    engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode)
    engine.start()
    return engine


def test_threads_that_wait_are_servers_of_one_queue() -> None:
    """A replica with k threads that need no core is M/M/k."""
    engine = engine_for(4, 300.0, service_s=Exponential(mean=0.01), cpu_share=0.0)
    engine.advance(400.0)
    window = engine.observe()
    assert window.latency is not None
    expected_s = MMk(arrival_per_s=300.0, service_per_s=100.0).mean_s(4)
    assert window.latency.mean_s == pytest.approx(expected_s, rel=0.05)
    operator = window.operator("call")
    assert operator.utilisation == pytest.approx(0.75, rel=0.03)
    assert operator.true_rows_per_s == pytest.approx(400.0, rel=0.03)


def test_calls_in_flight_waits_and_call_times_are_those_of_m_m_4() -> None:
    """With a load of 3, all four servers are idle for 2 / 53 of the time, and a row waits with the probability 27 / 53."""
    engine = engine_for(4, 300.0, service_s=Exponential(mean=0.01), cpu_share=0.0)
    engine.advance(20.0)
    before = engine.observe().operator("call").calls
    engine.advance(800.0)
    calls = engine.observe().operator("call").calls
    assert before is not None and calls is not None
    assert (calls.threads, calls.retries, calls.timeouts, calls.failed_rows, calls.abandoned) == (4, 0, 0, 0, 0)
    assert calls.calls == pytest.approx(240_000, rel=0.01)
    assert calls.call_s == pytest.approx(0.01, rel=0.01)
    assert calls.in_flight == pytest.approx(3 / (51 / 53), rel=0.01)
    assert calls.wait_s == pytest.approx(27 / 53 / 100, rel=0.1)


def test_each_replica_has_its_own_calls_in_flight() -> None:
    """Two replicas with two threads each, always busy; after a change to one replica with three threads as well."""
    engine = engine_for(2, 1_000.0, replicas=2, slots=2, cpu_share=0.0)
    engine.advance(10.0)
    engine.observe()
    engine.advance(10.0)
    first = engine.observe().operator("call").calls
    engine.apply(rescaled(engine.flow, engine.plan, {"call": 1, "call.threads": 3}))
    engine.advance(10.0)
    engine.observe()
    engine.advance(10.0)
    second = engine.observe().operator("call").calls
    assert first is not None and second is not None
    assert (first.threads, first.in_flight, first.call_s) == (2, pytest.approx(2.0), pytest.approx(0.01))
    assert (second.threads, second.in_flight, second.call_s) == (3, pytest.approx(3.0), pytest.approx(0.01))
    assert second.wait_s is not None and first.wait_s is not None and second.wait_s > first.wait_s > 1.0


def test_calls_of_a_batch_begin_in_rounds() -> None:
    """Every batch has the same rows: 4 of 10 ms at once, so a task with n rows takes n / 4 rounds."""
    engine = engine_for(4, 200.0, mode=Mode.MICRO_BATCH, cpu_share=0.0)
    engine.advance(30.0)
    engine.observe()
    engine.advance(100.0)
    window = engine.observe()
    calls, batches = window.operator("call").calls, window.pipelines[0].batches
    assert calls is not None and calls.in_flight == pytest.approx(4.0, rel=0.1)
    assert calls.call_s == pytest.approx(0.01, rel=0.01)
    rows = calls.calls / batches
    assert calls.wait_s == pytest.approx((rows / 4 - 1) / 2 * 0.01, rel=0.25)


def test_an_operator_without_threads_has_no_calls() -> None:
    engine = engine_for(2, 100.0)
    engine.advance(5.0)
    assert [operator.operator for operator in engine.observe().operators if operator.calls is not None] == ["call"]


@pytest.mark.parametrize("mode", [Mode.ROW_BY_ROW, Mode.MICRO_BATCH, Mode.FLUID])
@pytest.mark.parametrize(("threads", "peak"), [(1, 100), (2, 100 + 200 / 3), (4, 300), (8, 250), (20, 250)])
def test_the_peak_of_a_slot_is_that_of_the_curve(mode: Mode, threads: int, peak: float) -> None:
    engine = engine_for(threads, 2_000.0, mode=mode, curve=CURVE)
    engine.advance(20.0)
    engine.observe()
    engine.advance(40.0)
    operator = engine.observe().operator("call")
    assert operator.true_rows_per_s == pytest.approx(peak, rel=0.01)
    if mode is not Mode.MICRO_BATCH:  # a batch has a fixed cost
        assert operator.processed_rows_per_s == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize("mode", [Mode.ROW_BY_ROW, Mode.MICRO_BATCH, Mode.FLUID])
def test_threads_that_compute_share_the_core_of_their_slot(mode: Mode) -> None:
    engine = engine_for(8, 1_000.0, mode=mode, replicas=2, slots=2)
    engine.advance(30.0)
    assert engine.observe().operator("call").true_rows_per_s == pytest.approx(100.0, rel=0.01)


@pytest.mark.parametrize("mode", [Mode.ROW_BY_ROW, Mode.MICRO_BATCH, Mode.FLUID])
def test_threads_change_without_a_pause_and_without_a_lost_row(mode: Mode) -> None:
    engine = engine_for(1, 150.0, mode=mode, cpu_share=0.0)
    engine.advance(10.0)
    applied = engine.apply(rescaled(engine.flow, engine.plan, {"call.threads": 4}))
    assert (applied.pause_s, applied.stopped, applied.changed) == (0.0, (), "call: 1 -> 4 threads")
    engine.advance(30.0)
    engine.observe()
    engine.advance(10.0)
    window = engine.observe()
    assert window.operator("call").processed_rows_per_s == pytest.approx(150.0, rel=0.1)
    engine.set_rate("source", 0.0)
    engine.advance(10.0)
    last = engine.observe()
    assert last.operator("out").rows_in_total == last.operator("source").rows_out_total
