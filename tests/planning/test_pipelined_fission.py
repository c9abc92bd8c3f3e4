"""Pipelined fission: the exact search against all configurations, and the calibration against a simulated engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.apps import joker
from penstock.dataflow import PenstockError
from penstock.engines.simulated import SimulatedEngine, ThreadCosts
from penstock.models.fission_costs import FissionCosts
from penstock.models.pipelined_fission import CalibrationTrial, FissionRegion, fitted_costs
from penstock.plan import default_plan
from penstock.planning.pipelined_fission import best_plan

Choice = tuple[int, tuple[int, ...]]  # replicas, cuts


@st.composite
def chains(draw: st.DrawFn) -> FissionRegion:
    size = draw(st.integers(1, 4))
    return FissionRegion(
        name=draw(st.text("abcdefgh", min_size=8, max_size=8)),
        operators=tuple(f"o{i}" for i in range(size)),
        rows=tuple(draw(st.floats(0.1, 3.0)) for _ in range(size)),
        seconds_per_row=tuple(draw(st.floats(0.01, 1.0)) for _ in range(size)),
        allowed_cuts=frozenset(draw(st.sets(st.integers(1, 3))) & set(range(1, size))),
        required_cuts=frozenset(draw(st.sets(st.integers(1, 3), max_size=1)) & set(range(1, size))),
        max_replicas=draw(st.sampled_from([None, 1])),
    )


def all_choices(region: FissionRegion, slots: int) -> Iterator[Choice]:
    optional = sorted(region.allowed_cuts - region.required_cuts)
    for count in range(len(optional) + 1):
        for chosen in combinations(optional, count):
            for replicas in range(1, (region.max_replicas or slots) + 1):
                yield replicas, tuple(sorted({*chosen, *region.required_cuts}))


def slowest_s(region: FissionRegion, choice: Choice, costs: FissionCosts) -> float:
    """The time per external row, written out again: rows x (overhead + work) of each part / replicas.

    Only the first part receives rows that are distributed over replicas.
    """
    replicas, cuts = choice
    bounds = [0, *cuts, len(region.operators)]
    parts = [
        region.rows[bounds[n]] * costs.per_row_s(replicas if n == 0 else 1)
        + sum(region.rows[i] * region.seconds_per_row[i] for i in range(bounds[n], bounds[n + 1]))
        for n in range(len(bounds) - 1)
    ]
    return max(parts) / replicas


@given(
    regions=st.lists(chains(), min_size=1, max_size=2, unique_by=lambda region: region.name),
    slots=st.integers(1, 7),
    thread_s=st.floats(0.0, 0.5),
    replica_s=st.floats(0.0, 0.5),
)
@settings(deadline=None, max_examples=150)
def test_no_configuration_is_faster(
    regions: list[FissionRegion], slots: int, thread_s: float, replica_s: float
) -> None:
    costs = FissionCosts(thread_s=thread_s, replica_s=replica_s)
    possible = [
        max(slowest_s(region, choice, costs) for region, choice in zip(regions, choices, strict=True))
        for choices in product(*(list(all_choices(region, slots)) for region in regions))
        if sum(replicas * (1 + len(cuts)) for replicas, cuts in choices) <= slots
    ]
    plan = best_plan(regions, slots, costs)
    if plan is None:
        assert not possible
        return
    assert plan.threads <= slots
    assert plan.rows_per_s == pytest.approx(1.0 / min(possible))


def test_equal_throughput_takes_the_fewest_slots() -> None:
    """A stateful operator limits the rest: more replicas of the other region would not help."""
    slow = FissionRegion(name="a", operators=("a",), rows=(1.0,), seconds_per_row=(1.0,), max_replicas=1)
    fast = FissionRegion(name="b", operators=("b",), rows=(1.0,), seconds_per_row=(1.5,))
    plan = best_plan([slow, fast], 24, FissionCosts())
    assert plan is not None and (plan.choices["b"].replicas, plan.threads, plan.rows_per_s) == (2, 3, 1.0)


def test_the_costs_of_an_engine_are_calibrated_from_saturated_runs() -> None:
    """The simulator has known costs of threads: 2 ms per row, and 1 ms per doubling of the replicas."""
    unit_s = 1e-4
    flow = joker.one_operator(work=100)
    trials = []
    for replicas in (1, 2, 8):
        thread = ThreadCosts(row_s=0.002, replica_s=0.001, queue_rows=50)
        behaviour = joker.behaviour(flow, multiplication_s=unit_s, rows_per_s=1500.0, thread=thread)
        engine = SimulatedEngine(flow, behaviour, plan=default_plan(flow, slots=8, replicas={"m1_100": replicas}))
        engine.start()
        engine.advance(5.0)
        engine.observe()
        engine.advance(30.0)
        seen = engine.observe().operator("m1_100")
        assert seen.processed_rows_per_s is not None and seen.seconds_per_row is not None
        trials.append(
            CalibrationTrial(replicas=replicas, rows_per_s=seen.processed_rows_per_s, work_s=seen.seconds_per_row)
        )
    costs = fitted_costs(trials)
    assert costs.thread_s == pytest.approx(0.002, rel=0.05)
    assert costs.replica_s == pytest.approx(0.001, rel=0.05)


def test_trials_with_one_number_of_replicas_are_refused() -> None:
    with pytest.raises(PenstockError, match="with 1 and with several replicas"):
        fitted_costs([CalibrationTrial(replicas=2, rows_per_s=1.0, work_s=0.1)] * 2)
