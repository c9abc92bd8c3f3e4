"""Executors that are gone for good are told from those that are on their way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.engines.spark.executors import Standing
from penstock.engines.spark.executors.lasting import Lasting


def there(*ids: str) -> Any:
    standing = Standing(planned=2, requested=2, observed=ids)
    return SimpleNamespace(slots_each=2, standing=lambda: standing)


def test_others_than_planned_are_gone_on_with_when_they_have_lasted() -> None:
    lasting = Lasting(60.0)
    assert [lasting.slots(there("1"), 4, now_s) for now_s in (0.0, 30.0, 59.0, 65.0)] == [None, None, None, 2]
    assert lasting.slots(there("1", "2"), 4, 100.0) is None


def test_executors_that_came_when_fewer_were_wanted_are_told_when_they_have_lasted() -> None:
    """Two workers die while their executors are let go: the master had ordered others, and takes none back."""
    lasting = Lasting(60.0)
    late = there("1", "4", "5")
    assert [lasting.slots(late, 4, now_s) for now_s in (0.0, 30.0, 59.0, 65.0)] == [None, None, None, 6]


def test_a_run_without_any_executor_is_told_once_and_again_when_it_loses_them_again() -> None:
    lasting = Lasting(60.0)
    assert [lasting.slots(there(), 4, now_s) for now_s in (0.0, 30.0, 65.0, 130.0, 600.0)] == [
        None,
        None,
        0,
        None,
        None,
    ]
    assert lasting.slots(there("1", "2"), 4, 700.0) is None
    assert [lasting.slots(there(), 4, now_s) for now_s in (710.0, 775.0)] == [None, 0]
