"""A change keeps the executors of the old plan until the new plan is in force, and restores them if it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.engines.spark.change.executor_change import ExecutorChange
from penstock.engines.spark.executors import ExecutorsError
from penstock.plan import ExecutorGroup, Plan


class Workers:
    """A cluster whose executors have one slot. Groups come first; a group that is not complete is refused."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.slots: dict[str | None, int] = {}

    def resize(self, slots: int, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        in_groups = {name: group.slots for name, group in (groups or {}).items()}
        shared = slots - sum(in_groups.values())
        available = self.count - sum(in_groups.values())
        if available < min(shared, 1) or (in_groups and available < shared):
            raise ExecutorsError("a group is not complete")
        self.slots = {None: min(shared, available)} | in_groups
        return sum(self.slots.values())


def plan(shared: int, **groups: int) -> Plan:
    members = {name: ExecutorGroup(operators=(name,), slots=slots) for name, slots in groups.items()}
    return Plan(dataflow="f", slots=shared + sum(groups.values()), groups=members)


def change(workers: int, before: Plan, after: Plan) -> tuple[Any, ExecutorChange]:
    cluster: Any = Workers(workers)
    cluster.resize(before.slots, before.groups)
    return cluster, ExecutorChange(cluster, before, after)


def test_the_old_plan_keeps_its_groups_until_the_release() -> None:
    cluster, executors = change(9, plan(2, a=1, b=2), plan(1, b=3, c=1))
    assert executors.obtain() == plan(1, b=3, c=1)
    assert cluster.slots == {None: 2, "a": 1, "b": 3, "c": 1}
    assert executors.release() == 5
    assert cluster.slots == {None: 1, "b": 3, "c": 1}


def test_a_failed_change_restores_the_executors() -> None:
    cluster, executors = change(9, plan(2, a=1), plan(1, b=3))
    executors.obtain()
    executors.restore()
    assert cluster.slots == {None: 2, "a": 1}


def test_an_unavailable_group_is_refused_and_the_old_plan_has_its_executors() -> None:
    cluster, executors = change(4, plan(2, a=1), plan(2, a=1, b=2))
    with pytest.raises(ExecutorsError):
        executors.obtain()
    assert cluster.slots == {None: 2, "a": 1}


def test_shared_executors_become_those_of_a_group_on_a_full_cluster() -> None:
    cluster, executors = change(4, plan(4), plan(2, a=2))
    assert executors.obtain() == plan(2, a=2)
    assert cluster.slots == {None: 2, "a": 2}
    assert executors.release() is None or cluster.slots == {None: 2, "a": 2}


def test_without_groups_a_plan_takes_the_executors_that_there_are() -> None:
    cluster, executors = change(3, plan(1), plan(5))
    assert executors.obtain() == plan(3)
    assert executors.release() is None
    cluster, executors = change(3, plan(3), plan(2))
    assert executors.obtain() == plan(2) and cluster.slots == {None: 3}
    assert executors.release() == 2 and cluster.slots == {None: 2}
