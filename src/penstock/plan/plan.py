"""The Plan: a value that is read from and written to JSON, and the difference of two plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

import msgspec

from penstock.dataflow.errors import PenstockError, PlanError
from penstock.dataflow.json_document import JsonDocument
from penstock.plan.counts import slots_text

Value = TypeVar("Value")


class ExecutorGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Executors that run only the tasks of some operators, and no other tasks."""

    operators: tuple[str, ...]
    slots: int

    def __str__(self) -> str:
        return f"{slots_text(self.slots)} for {', '.join(self.operators)}"


class Plan(msgspec.Struct, JsonDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a dataflow runs: its cuts into queries, its replicas and threads, and the executors of its operators.

    Attributes:
        dataflow: Name of the dataflow that the plan is for.
        cuts: Operators whose output goes through a channel, so that the next operator is in another query.
        replicas: Replicas by operator name. Operators that are replicated together have one entry: a plan may name any
            of them, and a validated plan names the first.
        threads: Calls in flight per replica, by name of an operator that is declared with threads. A validated plan
            contains all of them.
        slots: Number of tasks that run at the same time, in all groups and outside of them.
        groups: Groups of executors by name. Operators without a group run on the other executors, or in the group of
            an operator with which they share a stage.
    """

    noun: ClassVar[str] = "a plan"
    json_example: ClassVar[str] = '{"dataflow": "wordcount", "cuts": ["split"], "replicas": {"count": 4}, "slots": 4}'
    error_type: ClassVar[type[PenstockError]] = PlanError

    dataflow: str
    cuts: frozenset[str] = frozenset()
    replicas: dict[str, int] = {}
    threads: dict[str, int] = {}
    slots: int
    groups: dict[str, ExecutorGroup] = {}

    @property
    def group_slots(self) -> int:
        """The slots of all groups."""
        return sum(group.slots for group in self.groups.values())

    @property
    def slots_by_group(self) -> str:
        """The slots in words, with those of each group.

        >>> Plan(dataflow="f", slots=3, groups={"a": ExecutorGroup(operators=("lookup",), slots=2)}).slots_by_group
        '3 slots (2 in group a)'
        """
        groups = ", ".join(f"{group.slots} in group {name}" for name, group in self.groups.items())
        return f"{slots_text(self.slots)} ({groups})" if groups else slots_text(self.slots)

    @property
    def group_of(self) -> dict[str, str]:
        """The name of the group of each operator that has one."""
        return {operator: name for name, group in self.groups.items() for operator in group.operators}


class PlanDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The changes from one plan to another; `str()` describes them in words."""

    cuts_added: tuple[str, ...]
    cuts_removed: tuple[str, ...]
    replicas: dict[str, tuple[int | None, int | None]]  # operator -> (before, after)
    slots: tuple[int, int] | None
    threads: dict[str, tuple[int | None, int | None]] = {}  # operator -> (before, after)
    groups: dict[str, tuple[ExecutorGroup | None, ExecutorGroup | None]] = {}  # name -> (before, after)

    @property
    def empty(self) -> bool:
        """Whether the two plans are equal."""
        changes = (self.cuts_added, self.cuts_removed, self.replicas, self.threads, self.slots, self.groups)
        return not any(changes)

    def __str__(self) -> str:
        parts = [f"cut after {name}" for name in self.cuts_added]
        parts += [f"no cut after {name}" for name in self.cuts_removed]
        parts += [f"{operator}: {before} -> {after} replicas" for operator, (before, after) in self.replicas.items()]
        parts += [f"{operator}: {before} -> {after} threads" for operator, (before, after) in self.threads.items()]
        if self.slots:
            parts.append(f"slots: {self.slots[0]} -> {self.slots[1]}")
        parts += [
            f"group {name}: {before or 'none'} -> {after or 'none'}" for name, (before, after) in self.groups.items()
        ]
        return ", ".join(parts) or "no change"


def diff(old: Plan, new: Plan) -> PlanDiff:
    """Return the changes from the plan `old` to the plan `new`.

    Raises:
        PlanError: The plans are for different dataflows.

    >>> old = Plan(dataflow="f", cuts=frozenset({"split"}), replicas={"split": 1, "count": 2}, slots=4)
    >>> str(diff(old, old.replace(cuts=frozenset(), replicas={"split": 1, "count": 3})))
    'no cut after split, count: 2 -> 3 replicas'
    """
    if old.dataflow != new.dataflow:
        raise PlanError(
            f"Plans of two dataflows, '{old.dataflow}' and '{new.dataflow}', cannot be compared; give two plans of the "
            "same dataflow."
        )
    return PlanDiff(
        cuts_added=tuple(sorted(new.cuts - old.cuts)),
        cuts_removed=tuple(sorted(old.cuts - new.cuts)),
        replicas=_changed(old.replicas, new.replicas),
        slots=(old.slots, new.slots) if old.slots != new.slots else None,
        threads=_changed(old.threads, new.threads),
        groups=_changed(old.groups, new.groups),
    )


def _changed(old: Mapping[str, Value], new: Mapping[str, Value]) -> dict[str, tuple[Value | None, Value | None]]:
    """Return the values that differ, as (before, after) by name."""
    return {
        name: (old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }
