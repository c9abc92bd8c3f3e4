"""The contract of a negotiator: who gets executors from wherever they come from (DRS, section IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.dataflow.errors import PenstockError


class ExecutorsError(PenstockError):
    """Executors cannot be had, or not changed."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Three numbers that are seldom the same: nothing is concluded from one about another."""

    planned: int  # what the plan in force wants
    requested: int  # what was last asked of the cluster
    observed: tuple[str, ...]  # that take tasks now, by Spark's ids

    def __str__(self) -> str:
        return f"{self.planned} planned, {self.requested} requested, {len(self.observed)} there"


class Negotiator(Protocol):
    @property
    def slots_each(self) -> int:
        """Of one executor."""

    def standing(self) -> Standing: ...

    def check(self, slots: int) -> None:
        """Raises PenstockError if so many slots can never be had here."""

    def ask(self, count: int) -> None:
        """For so many in all. They come, or do not; what is lost later is replaced."""

    def release(self, ids: Sequence[str]) -> None:
        """Gracefully: each ends what it is doing, and hands on what only it has."""

    def begin(self, slots: int | None) -> int:
        """At the start of a run, None for as few as there can be: the slots that are there."""

    def settle(self, slots: int) -> int:
        """Plans for so many slots, waits for what comes or goes, and returns what is there: it may be fewer."""
