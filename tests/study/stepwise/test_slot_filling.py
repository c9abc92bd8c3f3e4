"""The tasks that use the slots best, compared with an exhaustive search, and core shares that trials reveal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.core_sharing import SharedCores
from penstock.study.stepwise.configuration import Configuration, OperatorMeasurement, Round, TrialChange
from penstock.study.stepwise.slot_filling import SlotFilling, TurnFilling, fitted

LATENCY_S = 10.0  # so long that the number of tasks does not matter


def cores(seconds: Mapping[str, float], slots: int, shares: Mapping[str, float] | None = None) -> SharedCores:
    names = list(seconds)
    return SharedCores(
        seconds={name: cost for name, cost in seconds.items() if cost > 0},
        rows=dict.fromkeys(names, 1.0),
        inputs={name: names[:number][-1:] for number, name in enumerate(names)},
        core_shares=dict.fromkeys(names, 1.0) | dict(shares or {}),
        slots=slots,
    )


def best(seconds: Mapping[str, float], slots: int, fixed: Mapping[str, int] | None = None) -> dict[str, int] | None:
    filling = SlotFilling(cores=cores(seconds, slots), latency_s=LATENCY_S, fixed=fixed or {}).best([])
    return None if filling is None else filling.tasks


def rate(tasks: Mapping[str, int], seconds: Mapping[str, float], slots: int) -> float:
    """Rows/s of the slowest operator: tasks are placed in turn, and the tasks of a slot have equal parts of its core."""
    placed = [name for name in seconds for _ in range(tasks[name])]
    parts = dict.fromkeys(seconds, 0.0)
    for number, name in enumerate(placed):
        parts[name] += 1.0 / len(placed[number % slots :: slots])
    return min(parts[name] / cost for name, cost in seconds.items())


def measured(true: SharedCores, tasks: dict[str, int]) -> Round:
    """A trial in which each row takes the time that follows from the tasks on its slot."""
    placed = [name for name in tasks for _ in range(tasks[name])]
    took: dict[str, list[float]] = {name: [] for name in tasks}
    for number, name in enumerate(placed):
        shares = [true.core_shares[other] for other in placed[number % true.slots :: true.slots]]
        # Solve by trying: the core is used completely, but not more.
        stretch = 1.0
        while sum(share / (1.0 - share + share * stretch) for share in shares) > 1.0:
            stretch += 1e-3
        share = true.core_shares[name]
        took[name].append(true.seconds[name] * (1.0 - share + share * stretch))
    mean_s = {name: len(each) / sum(1.0 / seconds for seconds in each) for name, each in took.items()}
    return Round(
        configuration=Configuration(tasks=tasks),
        change=TrialChange.SINKS,
        rows_per_s=(1.0, 1.0),
        latency_s=0.1,
        operators={
            name: OperatorMeasurement(latency_s=1.0, capacity=1.0, processing_s=seconds)
            for name, seconds in mean_s.items()
        },
    )


def test_equal_operators_use_all_slots() -> None:
    seconds = dict.fromkeys("abc", 0.001)
    assert best(seconds, slots=12) == {"a": 4, "b": 4, "c": 4}
    tasks = best(seconds, slots=16)
    assert tasks is not None and rate(tasks, seconds, slots=16) == pytest.approx(16 / 0.003)


def test_operators_without_cost_need_no_slot_and_fixed_ones_keep_their_tasks() -> None:
    assert best({"a": 0.001, "free": 0.0}, slots=4) == {"a": 4, "free": 1}
    seconds = {"a": 0.001, "one": 0.0001}
    tasks = best(seconds, slots=4, fixed={"one": 1})
    # The task of 'one' shares its slot with one task of 'a', which has all other slots.
    assert tasks is not None and tasks["one"] == 1
    assert rate(tasks, seconds, slots=4) == pytest.approx(3.5 / 0.001)
    assert best({"one": 0.001}, slots=4, fixed={"one": 1}) is None


def test_a_short_latency_target_allows_few_tasks_per_slot() -> None:
    """Costs of 1:7 need eight tasks on one slot, on which a row takes eight times as long: 8 x (10 + 70) ms."""
    model = cores({"a": 0.010, "b": 0.070}, slots=1)
    many = SlotFilling(cores=model, latency_s=100.0, fixed={}).best([])
    few = SlotFilling(cores=model, latency_s=0.6, fixed={}).best([])
    assert many is not None and few is not None
    assert many.tasks == {"a": 1, "b": 7}
    assert sum(few.tasks.values()) < 8
    assert few.rows_per_s < many.rows_per_s


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.1, 5.0), min_size=2, max_size=3), st.integers(3, 8))
def test_no_other_division_is_much_better(costs: list[float], slots: int) -> None:
    seconds = {str(number): cost / 1e6 for number, cost in enumerate(costs)}
    tasks = best(seconds, slots)
    assert tasks is not None
    highest = max(
        rate(dict(zip(seconds, counts, strict=True)), seconds, slots)
        for counts in itertools.product(range(1, 13), repeat=len(costs))
        if sum(counts) <= 8 * slots
    )
    assert rate(tasks, seconds, slots) >= 0.98 * highest


@pytest.mark.parametrize(
    ("shares", "tasks"),
    [
        ({"cpu": 1.0, "json": 1.0, "wait": 1.0}, {"cpu": 8, "json": 6, "wait": 7}),
        ({"cpu": 1.0, "json": 0.5, "wait": 0.0}, {"cpu": 8, "json": 6, "wait": 20}),
        ({"cpu": 0.8, "json": 0.5, "wait": 0.2}, {"cpu": 15, "json": 15, "wait": 15}),
    ],
)
def test_a_trial_with_shared_slots_reveals_core_shares_and_times(
    shares: dict[str, float], tasks: dict[str, int]
) -> None:
    true = cores({"cpu": 0.001, "json": 0.002, "wait": 0.005}, 6, shares)
    # The minimal latency is a low quantile, 5 % below the mean, and all operators seem to need a core all the time.
    known = cores({name: 0.95 * cost for name, cost in true.seconds.items()}, 6)
    times = fitted(known, [measured(true, tasks)])
    assert dict(times.core_shares) == pytest.approx(shares, abs=0.15)
    assert dict(times.seconds) == pytest.approx(dict(true.seconds), rel=0.15)


def test_tasks_without_a_shared_slot_reveal_nothing() -> None:
    true = cores({"cpu": 0.001, "wait": 0.005}, 12, {"cpu": 1.0, "wait": 0.0})
    known = cores(true.seconds, 12)
    assert fitted(known, [measured(true, {"cpu": 6, "wait": 6})]) is known
    assert fitted(known, []) is known


def test_operators_that_take_turns_get_a_task_per_slot() -> None:
    fill = TurnFilling(slots=8, free=["parse", "count"])
    tasks = {"parse": 8, "count": 3, "rank": 1}
    present = Round(
        configuration=Configuration(tasks=tasks), change=TrialChange.SINKS, rows_per_s=(100.0, 102.0), latency_s=0.1
    )
    filling = fill.better([present], present)
    assert filling is not None and filling.tasks == {"parse": 8, "count": 8}
    assert filling.rows_per_s == 101.0
    full = replace(present, configuration=Configuration(tasks={"parse": 8, "count": 9, "rank": 1}))
    assert fill.better([present], full) is None
