"""The memory of policy auto about its plans."""

from __future__ import annotations

import pytest

from penstock.control.policies.auto.learned import Learned
from penstock.measure.window import OperatorWindow, Window


def learned() -> Learned:
    """A memory in which plan a met its target in 60 windows, and plan b missed it in all of them."""
    memory = Learned()
    memory.use_target((2.0, None))
    for number in range(60):
        for plan, is_late in (("a", False), ("b", True)):
            memory.add_result(
                plan, 4, level=7, late=is_late, measured_s=1.5, predicted_s=1.0, at_s=10.0 * number, span_s=1.0
            )
    return memory


def test_plans_are_judged_by_the_windows_at_their_load() -> None:
    memory = learned()
    assert memory.has_held("a", 7) and not memory.has_failed("a", 7)
    assert memory.has_failed("b", 7) and not memory.has_held("b", 7)
    assert not memory.has_held("a", 20)  # a much higher load


def test_another_target_forgets_which_plans_were_late_and_keeps_the_correction() -> None:
    memory = learned()
    correction = memory.correction("a")
    assert correction > 1.0
    memory.use_target((2.0, None))
    assert memory.has_held("a", 7)
    memory.use_target((1.0, None))
    assert not memory.has_held("a", 7) and not memory.has_failed("b", 7)
    assert memory.correction("a") == correction
    restored = Learned.of(memory.memory())
    assert restored.target == (1.0, None)
    restored.use_target((1.0, 0.95))
    assert restored.target == (1.0, 0.95)


def test_one_late_window_is_chance_and_two_of_few_are_not() -> None:
    memory = Learned()

    def add(late: bool) -> None:
        memory.add_result("c", 4, level=7, late=late, measured_s=1.5, predicted_s=1.0, at_s=0.0, span_s=0.0)

    add(True)
    assert not memory.has_failed("c", 7)
    add(True)
    assert memory.has_failed("c", 7)
    for _ in range(200):
        add(False)
    assert not memory.has_failed("c", 7)  # 1 % of the windows


def test_the_backlog_is_the_highest_one_within_the_time_of_a_batch() -> None:
    """In micro-batches no row waits directly after a batch has begun, although the backlog is still there."""
    memory = Learned(batch_s=12.0)
    sawtooth = [9_000.0, 0.0, 8_000.0, 0.0, 7_000.0, 0.0]
    seen = [memory.add_waiting(10.0 * (at + 1), rows, 10.0) for at, rows in enumerate(sawtooth)]
    assert seen == [9_000.0, 9_000.0, 9_000.0, 8_000.0, 8_000.0, 7_000.0]
    assert not memory.grows
    assert memory.add_waiting(70.0, 12_000.0, 10.0) == 12_000.0 and memory.grows


def test_the_backlog_of_short_batches_is_that_of_the_window() -> None:
    memory = Learned(batch_s=0.5)
    assert [memory.add_waiting(10.0 * at, rows, 10.0) for at, rows in enumerate((50.0, 0.0, 20.0), 1)] == [
        50.0,
        0.0,
        20.0,
    ]


def window(seconds_per_row: float) -> Window:
    seen = OperatorWindow.knowing(
        "work", "p", rows_in=1000, rows_out=1000, seconds_per_row=seconds_per_row, service_scv=1.0
    )
    return Window(
        start_s=0.0, end_s=10.0, generation=1, external_rows_per_s=100.0, latency=None, pipelines=(), operators=(seen,)
    )


def test_a_cost_that_has_changed_replaces_the_earlier_one_and_noise_is_averaged() -> None:
    memory = Learned()
    for at in range(60):
        memory.add_operators(window(0.010 * (1.05 if at % 2 else 0.95)), 10.0, slowdown=1.0)
    assert memory.with_learned(window(1.0)).operator("work").seconds_per_row == pytest.approx(0.010, rel=0.02)
    for _ in range(3):
        memory.add_operators(window(0.014), 10.0, slowdown=1.0)
    assert memory.with_learned(window(1.0)).operator("work").seconds_per_row == pytest.approx(0.014)
    memory.add_operators(window(0.030), 10.0, slowdown=1.0)  # one window is no change
    assert memory.with_learned(window(1.0)).operator("work").seconds_per_row < 0.025


def test_a_target_is_the_same_after_the_store_has_rounded_it() -> None:
    """With a target of 2.5737294 s, what each plan has shown was forgotten at every decision."""
    target = (2.5737294, 0.95)
    learned = Learned(target=target)
    learned.add_result("a", 3, level=10, late=True, measured_s=3.0, predicted_s=2.0, at_s=10.0, span_s=10.0)
    restored = Learned.of(learned.memory())
    restored.use_target(target)
    assert restored.plans["a"].levels == {"10": (1.0, 1.0)}
    restored.use_target((2.6, 0.95))
    assert restored.plans["a"].levels == {}


def test_late_windows_at_a_high_load_are_not_excused_by_good_ones_at_lower_loads() -> None:
    learned = Learned()
    for level, late, windows in ((10, False, 400), (14, True, 4)):
        for _ in range(windows):
            learned.add_result("a", 3, level=level, late=late, measured_s=1.0, predicted_s=1.0, at_s=0.0, span_s=0.0)
    assert learned.has_failed("a", 14)
    assert not learned.has_failed("a", 12)
