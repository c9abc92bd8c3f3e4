"""Operator classes in simulation: how often they are invoked follows from the rows of their ports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from tests.support.port_operators import Recorder, Scheduled, naive_calls
from tests.support.simulated_flows import MODES, plan_for

COST = OperatorBehaviour(service_s=Exponential(mean=0.01))
# Rows of each source -> schedule -> invocations, by hand. Rows may be taken in other portions if the count is not exact.
CASES: list[tuple[list[int], str, str, list[int], int]] = [
    ([103], "all", "exact", [10], 10),
    ([100, 150], "all", "exact", [2, 3], 50),
    ([100, 40], "all", "exact", [1, 1], 40),
    ([90, 100, 50], "all", "exact", [3, 4, 2], 25),
    ([100, 47], "any", "exact", [10, 5], 10 + 9),
    ([103], "any", "exact", [1], 103),
]


def barrier(sources: list[int], ports: str, count: str, rows: list[int]) -> Dataflow:
    flow = penstock.Dataflow("ports")
    inputs = [
        flow.source(f"s{i}", penstock.generate(int, schema="key bigint, n bigint", rows=total, rows_per_s=50.0))
        for i, total in enumerate(sources)
    ]
    inputs = [stream.stateless(f"in{i}", lambda df: df) for i, stream in enumerate(inputs)]
    calls = flow.operator("calls", Recorder(), inputs=inputs, keys=["key"], ports=ports, count=count, rows=rows)
    calls.sink("out", penstock.noop())
    return flow


def finished(flow: Dataflow, mode: str, *changes: dict[str, Any], **costs: Any) -> dict[str, Any]:
    """Run to the end, with a change of the plan every second, and return the counts of the operator."""
    operators = dict.fromkeys((*(n for n in ("in0", "in1", "in2") if n in flow), "calls"), COST)
    behaviour = Behaviour(operators=operators | costs, batch=SimulatedBatchCosts(batch_s=0.05))
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow), mode=mode, seed=5)
    engine.start()
    for change in changes:
        engine.advance(1.0)
        engine.apply(
            engine.plan.replace(**change) if "cuts" in change else penstock.rescaled(flow, engine.plan, change)
        )
    while not engine.idle():
        engine.advance(1.0)
    counts = engine.simulation.counts.operators
    at = [operator.name for operator in flow.operators].index("calls")
    return {field: int(counts[field][at]) for field in ("rows_in", "rows_out")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("sources", "ports", "count", "rows", "invocations"), CASES)
def test_exact_schedules(
    mode: str, sources: list[int], ports: str, count: str, rows: list[int], invocations: int
) -> None:
    flow = barrier(sources, ports, count, rows)
    assert finished(flow, mode) == {"rows_in": sum(sources), "rows_out": invocations}


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[str, str, list[int], list[int], list[float]]:
    """Draw a schedule, the rows that it needs, and the rows and rates of the sources."""
    ports = draw(st.sampled_from(["all", "any"]))
    count = draw(st.sampled_from(["exact", "at least", "equal"] if ports == "all" else ["exact", "at least"]))
    size = draw(st.integers(1, 3))
    rows = [draw(st.integers(1, 4)) for _ in range(size)]
    if count == "equal":
        rows = [rows[0]] * size
    rates = draw(st.permutations([31.7, 50.3, 83.9]))[:size]  # no two rows arrive at the same time
    return ports, count, rows, [draw(st.integers(0, 60)) for _ in range(size)], rates


@given(case=arrivals())
@settings(max_examples=40)
def test_invocations_of_random_interleavings(case: tuple[str, str, list[int], list[int], list[float]]) -> None:
    """Row by row, without costs: the rows of all ports in the order of their times, against the plain reference."""
    ports, count, rows, totals, rates = case
    flow = penstock.Dataflow("ports")
    inputs = [
        flow.source(f"s{i}", penstock.generate(int, schema="key bigint, n bigint", rows=total, rows_per_s=rate))
        for i, (total, rate) in enumerate(zip(totals, rates, strict=True))
    ]
    calls = flow.operator("calls", Recorder(), inputs=inputs, keys=["key"], ports=ports, count=count, rows=rows)
    calls.sink("out", penstock.noop())
    in_order = sorted(
        ((n + 1) / rate, port)
        for port, (total, rate) in enumerate(zip(totals, rates, strict=True))
        for n in range(total)
    )
    expected = naive_calls(ports, count, rows, [[(port, 0, n)] for n, (_, port) in enumerate(in_order)])
    assert invoked(flow, {f"s{i}": SourceBehaviour(interarrival=Fixed(value=1.0)) for i in range(len(rows))}) == {
        "rows_in": sum(totals),
        "rows_out": len(expected),
    }


def invoked(flow: Dataflow, sources: dict[str, SourceBehaviour]) -> dict[str, int]:
    """Run to the end row by row, without costs, and return the counts of the operator."""
    operators = {"calls": OperatorBehaviour(service_s=Fixed(value=0.0))}
    engine = SimulatedEngine(flow, Behaviour(operators=operators, sources=sources), plan=plan_for(flow))
    engine.start()
    while not engine.idle():
        engine.advance(1.0)
    counts = engine.simulation.counts.operators
    at = [operator.name for operator in flow.operators].index("calls")
    return {field: int(counts[field][at]) for field in ("rows_in", "rows_out")}


@pytest.mark.parametrize("mode", MODES)
def test_waiting_rows_survive_changes_of_replicas_and_cuts(mode: str) -> None:
    flow = barrier([100, 150], "all", "exact", [2, 3])
    cuts = frozenset({"in0", "in1"})
    changes = ({"calls": 3}, {"cuts": cuts}, {"calls": 1, "in0": 2}, {"cuts": frozenset()})
    assert finished(flow, mode, *changes) == {"rows_in": 250, "rows_out": 50}


@pytest.mark.parametrize("mode", MODES)
def test_rows_per_invocation(mode: str) -> None:
    flow = barrier([100], "all", "exact", [10])
    emitting = OperatorBehaviour(service_s=Exponential(mean=0.01), emitted=Fixed(value=3.0))
    assert finished(flow, mode, calls=emitting)["rows_out"] == 30


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("when", "rows_out"), [(penstock.never(), [0]), (penstock.every(0.5), [7, 8])])
def test_a_periodic_operator_emits_by_time_and_one_without_a_schedule_nothing(
    mode: str, when: Any, rows_out: list[int]
) -> None:
    """200 rows in 4 s are 8 periods of 0.5 s; rows of a period leave with the next row."""
    flow = penstock.Dataflow("schedules")
    source = flow.source("s0", penstock.generate(int, schema="key bigint, n bigint", rows=200, rows_per_s=50.0))
    calls = flow.operator("calls", Scheduled(), inputs=[source], keys=["key"], when=when)
    calls.sink("out", penstock.noop())
    counts = finished(flow, mode)
    assert counts["rows_in"] == 200
    assert counts["rows_out"] in rows_out


@pytest.mark.parametrize("mode", MODES)
def test_a_selectivity_replaces_the_schedule(mode: str) -> None:
    flow = barrier([100], "all", "exact", [10])
    measured = OperatorBehaviour(service_s=Exponential(mean=0.01), selectivity=Fixed(value=1.0))
    assert finished(flow, mode, calls=measured)["rows_out"] == 100


@pytest.mark.parametrize("count", ["at least", "equal"])
def test_larger_batches_have_fewer_invocations(count: str) -> None:
    """Row by row, an invocation takes place as soon as it can; a batch has many rows, which one invocation takes."""
    flow = barrier([200, 200], "all", count, [2, 2])
    by_row, by_batch = (finished(flow, mode)["rows_out"] for mode in MODES)
    assert 0 < by_batch < by_row <= 100


def test_the_mean_selectivity_follows_from_the_schedule() -> None:
    flow = barrier([1, 1], "all", "exact", [2, 3])
    assert Behaviour().selectivity(flow, "calls").mean == pytest.approx(1 / 5)
    flow = barrier([1, 1], "any", "exact", [2, 6])
    assert Behaviour().selectivity(flow, "calls").mean == pytest.approx(1 / 4)
