"""The tasks that fill the slots equally, compared with an exhaustive search."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.study.stepwise.slot_filling import filling_tasks


def rate(tasks: dict[str, int], seconds: dict[str, float], slots: int) -> float:
    """Rows/s of the slowest operator if every slot has the same number of tasks."""
    per_slot = sum(tasks.values()) / slots
    return min(tasks[name] / seconds[name] for name in seconds) / per_slot


def test_equal_operators_use_all_slots() -> None:
    seconds = dict.fromkeys("abc", 0.001)
    assert filling_tasks(seconds, slots=16) == {"a": 16, "b": 16, "c": 16}
    assert filling_tasks(seconds, slots=12) == {"a": 4, "b": 4, "c": 4}


def test_operators_without_cost_need_no_slot_and_fixed_ones_keep_their_tasks() -> None:
    assert filling_tasks({"a": 0.001, "free": 0.0}, slots=4) == {"a": 4, "free": 1}
    # With two tasks per slot: 7 / 2 rows/ms and 1 / 0.2 rows/ms. With three, the fixed task limits them to 1 / 0.3.
    assert filling_tasks({"a": 0.001, "one": 0.0001}, slots=4, fixed={"one": 1}) == {"a": 7, "one": 1}
    # Its input is constant: five tasks per slot and 19 / 5 rows/ms, within 2 % of eight and 31 / 8.
    constant = filling_tasks({"a": 0.001, "one": 0.0001}, slots=4, fixed={"one": 3}, constant=["one"])
    assert constant == {"a": 19, "one": 1}
    assert filling_tasks({"one": 0.001}, slots=4, fixed={"one": 1}) is None


def test_more_operators_than_slots_share_them() -> None:
    assert filling_tasks(dict.fromkeys("abcde", 0.001), slots=2) == dict.fromkeys("abcde", 2)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.1, 5.0), min_size=2, max_size=3), st.integers(3, 8))
def test_no_other_division_is_much_better(costs: list[float], slots: int) -> None:
    seconds = {str(number): cost for number, cost in enumerate(costs)}
    found = filling_tasks(seconds, slots)
    assert found is not None and sum(found.values()) % slots == 0
    best = max(
        rate(dict(zip(seconds, counts, strict=True)), seconds, slots)
        for counts in itertools.product(range(1, 25), repeat=len(costs))
        if sum(counts) % slots == 0 and sum(counts) <= 8 * slots
    )
    assert rate(found, seconds, slots) >= 0.98 * best - 1e-9
