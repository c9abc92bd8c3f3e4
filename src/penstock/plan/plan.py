"""The Plan: a pure value, JSON in and out, and the difference of two."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from penstock.dataflow.document import Document
from penstock.dataflow.errors import PenstockError, PlanError


class Plan(msgspec.Struct, Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a dataflow runs: where it is cut into queries, and how many replicas each region has.

    `cuts` names the operators whose output goes through a channel; `replicas` goes by region, which is called by its
    first operator; `slots` is how many tasks run at once.
    """

    called: ClassVar[str] = "a plan"
    example: ClassVar[str] = '{"dataflow": "wordcount", "cuts": ["split"], "replicas": {"count": 4}, "slots": 4}'
    refused_with: ClassVar[type[PenstockError]] = PlanError

    dataflow: str
    cuts: frozenset[str] = frozenset()
    replicas: dict[str, int] = {}
    slots: int


class PlanDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What changes from one plan to another."""

    cuts_added: tuple[str, ...]
    cuts_removed: tuple[str, ...]
    replicas: dict[str, tuple[int | None, int | None]]  # region -> (before, after)
    slots: tuple[int, int] | None

    @property
    def empty(self) -> bool:
        return not (self.cuts_added or self.cuts_removed or self.replicas or self.slots)

    def __str__(self) -> str:
        parts = [f"cut after {name}" for name in self.cuts_added]
        parts += [f"no cut after {name}" for name in self.cuts_removed]
        parts += [f"{region} {old} -> {new} replicas" for region, (old, new) in self.replicas.items()]
        if self.slots:
            parts.append(f"slots {self.slots[0]} -> {self.slots[1]}")
        return ", ".join(parts) or "no change"


def diff(old: Plan, new: Plan) -> PlanDiff:
    """
    >>> old = Plan(dataflow="f", cuts=frozenset({"split"}), replicas={"split": 1, "count": 2}, slots=4)
    >>> str(diff(old, old.replace(cuts=frozenset(), replicas={"split": 1, "count": 3})))
    'no cut after split, count 2 -> 3 replicas'
    """
    if old.dataflow != new.dataflow:
        raise PlanError(f"plans of two dataflows, '{old.dataflow}' and '{new.dataflow}', have no difference to apply")
    regions = sorted(old.replicas.keys() | new.replicas.keys())
    return PlanDiff(
        cuts_added=tuple(sorted(new.cuts - old.cuts)),
        cuts_removed=tuple(sorted(old.cuts - new.cuts)),
        replicas={
            region: (old.replicas.get(region), new.replicas.get(region))
            for region in regions
            if old.replicas.get(region) != new.replicas.get(region)
        },
        slots=(old.slots, new.slots) if old.slots != new.slots else None,
    )
