"""The capacity of a running query from its own batches: closed forms and coverage."""

from __future__ import annotations

import math
import random

import pytest

from penstock.measure.stage_run import StageRun
from penstock.models.microbatch.bottleneck import bottleneck
from penstock.models.microbatch.capacity import BatchRun, batch_time, capacity
from penstock.models.microbatch.saturation import WaitingRows, is_saturated


def batch(rows: int, *, fixed_s: float = 0.4, row_s: float = 0.01, tasks: int = 4, slots: int = 2) -> BatchRun:
    """A batch of equal tasks: ceil(k / p) tasks one after another."""
    task_s = rows * row_s / tasks
    wall_s = math.ceil(tasks / slots) * task_s
    stage = StageRun(tasks=tasks, task_s=rows * row_s, wall_s=wall_s, longest_s=task_s)
    return BatchRun(rows=rows, batch_s=fixed_s + wall_s, fixed_s=0.1, slots=slots, stages=(stage,))


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8])
def test_batches_of_different_sizes_determine_the_capacity(slots: int) -> None:
    # A row takes 10 ms on 4 tasks, so ceil(4 / p) / 4 of it is the time per row.
    estimate = capacity([batch(rows) for rows in (20, 50, 80, 110, 140)], slots)
    assert estimate is not None and estimate.value == pytest.approx(1.0 / (0.01 * math.ceil(4 / slots) / 4))


def test_batches_of_one_size_have_a_lower_bound_only() -> None:
    estimate = capacity([batch(100)] * 20, 2)
    # 0.4 s + 0.5 s, of which 0.1 s are known to be fixed.
    assert estimate is not None and (estimate.value, estimate.high) == (None, None)
    assert estimate.low == pytest.approx(100 / 0.8)


def test_a_limited_batch_sustains_its_rows_per_batch() -> None:
    limited = BatchRun(rows=500, batch_s=2.0, fixed_s=0.1, slots=2, stages=(), limited=True)
    for trigger_s, rate in ((0.0, 250.0), (1.0, 250.0), (5.0, 100.0)):
        estimate = capacity([limited] * 6, 2, trigger_s=trigger_s)
        assert estimate is not None and estimate.value == pytest.approx(rate)


def test_a_single_task_is_not_faster_on_more_slots() -> None:
    single = batch(100, tasks=1, slots=2)
    assert batch_time(single, 8).value == pytest.approx(single.batch_s)


def test_the_longest_task_bounds_a_skewed_stage() -> None:
    stage = StageRun(tasks=8, task_s=8.0, wall_s=4.5, longest_s=4.0)
    skewed = BatchRun(rows=100, batch_s=5.0, fixed_s=0.1, slots=2, stages=(stage,))
    assert batch_time(skewed, 64).low >= 4.0


def test_batches_without_rows_say_nothing() -> None:
    assert capacity([], 2) is None


@pytest.mark.parametrize("fixed_s", [0.05, 0.5, 5.0])
def test_the_interval_covers_the_truth(fixed_s: float) -> None:
    """D = A + C n with 10 % noise; the sizes follow from the previous batch, as without a pause between batches."""
    row_s, rate, covered, trials = 0.005, 100.0, 0, 200
    for seed in range(trials):
        noise, batches, before_s = random.Random(seed), [], 2.0
        for _ in range(40):
            rows = max(1, round(rate * before_s))
            before_s = (fixed_s + row_s * rows) * max(0.3, noise.gauss(1.0, 0.1))
            batches.append(BatchRun(rows=rows, batch_s=before_s, fixed_s=0.01, slots=2, stages=()))
        estimate = capacity(batches, 2)
        assert estimate is not None
        covered += estimate.low <= 1 / row_s and (estimate.high is None or estimate.high >= 1 / row_s)
    assert covered >= 0.88 * trials  # nominally 0.95; errors that depend on the size of the batch cost some


def test_noise_is_not_saturation() -> None:
    """Batches without a pause whose sizes vary: at 1 % of false alarms each, and a growth of 25 %, few are allowed."""
    alarms = 0
    for seed in range(300):
        noise, at_s, batches = random.Random(seed), 0.0, []
        for _ in range(40):
            batch_s = max(0.1, noise.gauss(1.0, 0.15))
            batches.append(WaitingRows(at_s, batch_s, 300.0 * batch_s))
            at_s += batch_s
        alarms += is_saturated(batches) is True
    assert alarms <= 3


def test_a_batch_that_leaves_rows_behind_may_pause() -> None:
    """100 rows are read every 10 s and 150 arrive, although a batch takes only one second."""
    batches = [WaitingRows(10.0 * index, 1.0, 100.0 + 50.0 * index, 50.0 * index) for index in range(1, 9)]
    assert is_saturated(batches) is True


def test_the_wait_for_tasks_of_other_queries_is_no_cost_of_a_row() -> None:
    """One task of 1 s waits 3 s for the slot. Alone, the query would take 1 s and the time to start a task."""
    stage = StageRun(tasks=1, task_s=1.0, wall_s=4.0, longest_s=1.0)
    alone = BatchRun(rows=10, batch_s=4.2, fixed_s=0.1, slots=1, stages=(stage,))
    shared = BatchRun(rows=10, batch_s=4.2, fixed_s=0.1, slots=1, stages=(stage,), shared=True)
    for slots in (1, 2):
        assert batch_time(alone, slots).value == pytest.approx(4.2)
        assert batch_time(shared, slots).value == pytest.approx(1.2, abs=0.11)
    assert bottleneck([alone, alone]) == "stage 1 of 1 (1 task on 1 slot), 95% of a batch"
    assert bottleneck([shared, shared]) == "the wait for slots that other queries use, 69% of a batch"
