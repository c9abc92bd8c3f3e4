"""Permanently lost executors are distinguished from executors that are starting."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.spark.executors import ExecutorCounts
from penstock.engines.spark.executors.drift import ExecutorDrift, GroupDrift
from penstock.engines.spark.executors.spark_negotiator import SparkNegotiator
from penstock.plan import ExecutorGroup


def registered(*ids: str) -> Any:
    counts = ExecutorCounts(planned=2, requested=2, registered=ids)
    return SimpleNamespace(slots_per_executor=2, counts=lambda: counts)


def test_a_lasting_difference_to_the_planned_executors_is_accepted() -> None:
    drift = ExecutorDrift(60.0)
    assert [drift.lasting_slots(registered("1"), 4, now_s) for now_s in (0.0, 30.0, 59.0, 65.0)] == [
        None,
        None,
        None,
        2,
    ]
    assert drift.lasting_slots(registered("1", "2"), 4, 100.0) is None


def test_lasting_surplus_executors_are_reported() -> None:
    """Two workers die while their executors are released: the master has already requested others and keeps them."""
    drift = ExecutorDrift(60.0)
    late = registered("1", "4", "5")
    assert [drift.lasting_slots(late, 4, now_s) for now_s in (0.0, 30.0, 59.0, 65.0)] == [None, None, None, 6]


class UnstableExecutor(SparkNegotiator):
    """The second of two executors dies after each registration, and a new one replaces it."""

    def __init__(self) -> None:
        self.patience_s, self._slots_per_executor = 0.05, 1
        self._spark, self._warms_up, self._warm, self._rejected, self._planned = None, False, set(), {}, 1
        self._cancelled = threading.Event()
        self._profiles: Any = SimpleNamespace(names=(), by_group=lambda ids: {None: list(ids)})
        self._looks = iter(range(1000))  # at most 1000 looks; they take 5 s, a hundred times the patience
        self.asked: list[int] = []

    def request(self, count: int, groups: Any = None) -> None:
        self.asked.append(count)

    def _registered(self) -> list[str]:
        return ["0", str(look)] if (look := next(self._looks)) % 3 else ["0"]

    _active = _registered


def test_an_executor_that_repeatedly_dies_is_not_waited_for_endlessly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.engines.spark.executors.spark_negotiator._POLL_S", 0.005)
    negotiator = UnstableExecutor()
    there = negotiator.resize(3)
    assert there in (1, 2) and negotiator.asked == [3, there]


def test_a_run_without_executors_is_reported_once_per_loss() -> None:
    drift = ExecutorDrift(60.0)
    assert [drift.lasting_slots(registered(), 4, now_s) for now_s in (0.0, 30.0, 65.0, 130.0, 600.0)] == [
        None,
        None,
        0,
        None,
        None,
    ]
    assert drift.lasting_slots(registered("1", "2"), 4, 700.0) is None
    assert [drift.lasting_slots(registered(), 4, now_s) for now_s in (710.0, 775.0)] == [None, 0]


def grouped(*ids: str, surplus: int = 0) -> Any:
    counts = ExecutorCounts(planned=3, requested=3, registered=("1", *ids), groups={"a": ids}, surplus=surplus)
    return SimpleNamespace(slots_per_executor=2, counts=lambda: counts)


def test_executors_of_groups_do_not_count_as_shared_ones() -> None:
    drift = ExecutorDrift(60.0)
    assert [drift.lasting_slots(grouped("2", "3"), 2, now_s) for now_s in (0.0, 65.0, 130.0)] == [None, None, None]


def test_a_lasting_shortage_of_a_group_is_reported_once_per_loss() -> None:
    drift, groups = GroupDrift(60.0), {"a": ExecutorGroup(operators=("match",), slots=4)}
    few = [drift.check(grouped("2"), groups, now_s)[0] for now_s in (0.0, 30.0, 65.0, 130.0)]
    assert few == [[], [], ["Group 'a' has 1 of its 2 executors, and the tasks of match run on these only."], []]
    assert drift.check(grouped("2", "3"), groups, 200.0) == ([], False)
    assert [len(drift.check(grouped(), groups, now_s)[0]) for now_s in (300.0, 365.0)] == [0, 1]


def test_a_lasting_surplus_in_groups_is_found() -> None:
    drift = GroupDrift(60.0)
    assert [drift.check(grouped(surplus=1), {}, now_s)[1] for now_s in (0.0, 30.0, 65.0)] == [False, False, True]
