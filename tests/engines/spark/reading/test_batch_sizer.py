"""Batch sizes of a query that takes A + C n seconds for n rows, derived from the last durations."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engines.spark.reading.batch_sizer import BatchSizer, copy_learned_sizes

FIXED_S, ROW_S, TARGET_S = 0.5, 1e-3, 2.0
LONGEST = 4.0  # times the target under a permanent backlog


class Query:
    """Ask for the next batch after the end of the previous one, like Spark."""

    def __init__(self, run: Path, fixed_s: float = FIXED_S, cold_s: tuple[float, ...] = ()) -> None:
        self.now_s, self.fixed_s, self.cold_s = 0.0, fixed_s, list(cold_s)
        run.mkdir(exist_ok=True)
        self.sizer = BatchSizer(TARGET_S, file=run / "batches" / "rows", clock=lambda: self.now_s)

    def batch(self, waiting: float) -> int:
        room = self.sizer.limit()
        rows = int(min(room, waiting))
        self.sizer.took(rows, rows_left=waiting > room)
        self.now_s += self.fixed_s + ROW_S * rows + (self.cold_s.pop(0) if self.cold_s else 0.0)
        return rows

    def batches(self, count: int, waiting: float = float("inf")) -> list[int]:
        return [self.batch(waiting) for _ in range(count)]


def rows_in(seconds: float) -> float:
    return (seconds - FIXED_S) / ROW_S


def test_batches_reach_the_longest_duration_under_a_backlog(tmp_path: Path) -> None:
    *_, last = Query(tmp_path).batches(200)  # a permanent overload
    assert last == pytest.approx(rows_in(LONGEST * TARGET_S), rel=0.1)


def test_a_small_fast_batch_does_not_reduce_the_next_full_batch(tmp_path: Path) -> None:
    query = Query(tmp_path)
    *_, full = query.batches(60)
    assert query.batches(20, waiting=40) == [40] * 20
    assert query.batch(float("inf")) == pytest.approx(full, rel=0.01)


def test_time_without_rows_does_not_count_as_the_duration_of_a_batch(tmp_path: Path) -> None:
    busy, idle = Query(tmp_path / "busy"), Query(tmp_path / "idle")
    for waiting in [float("inf")] * 40 + [3000, 500, float("inf")] * 10:
        idle.sizer.batch_ended()  # Spark asks, and no rows wait
        idle.now_s += 600.0
        idle.sizer.batch_ended()
        assert idle.batch(waiting) == pytest.approx(busy.batch(waiting), abs=1)  # the clock is larger


def test_an_overhead_above_the_target_is_detected_and_rows_get_as_much_time(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batches(60)
    query.fixed_s = 10.0
    *_, last = query.batches(100)
    assert ROW_S * last == pytest.approx(query.fixed_s, rel=0.5)


def test_another_run_of_the_dataflow_begins_with_the_last_limit(tmp_path: Path) -> None:
    query = Query(tmp_path / "one")
    *_, full = query.batches(60)
    copy_learned_sizes(tmp_path / "one", tmp_path / "two")
    copy_learned_sizes(tmp_path / "none", tmp_path / "two")
    again = Query(tmp_path / "two").batches(20)
    assert min(again) > 0.7 * full, again
    assert Query(tmp_path / "three").batch(float("inf")) == 500


def test_the_first_batches_of_a_start_do_not_determine_the_overhead(tmp_path: Path) -> None:
    first = Query(tmp_path / "one", fixed_s=10.0)
    first.batches(100)
    copy_learned_sizes(tmp_path / "one", tmp_path / "two")
    again = Query(tmp_path / "two", fixed_s=10.0, cold_s=(15.0, 2.0, 1.0)).batches(30)
    assert ROW_S * min(again[6:]) > 0.7 * 10.0, again
