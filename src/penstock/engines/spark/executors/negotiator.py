"""The contract of a negotiator, which obtains executors from a cluster manager and returns them.

The term is from DRS (section IV-B): the optimiser decides how many machines are needed, and the negotiator deals with
the cluster manager that owns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from pyspark.resource import ResourceProfile

from penstock.dataflow.errors import PenstockError
from penstock.plan import ExecutorGroup


class ExecutorsError(PenstockError):
    """Executors are not available, or their number cannot be changed."""


class ExecutorCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Three counts that often differ. None of them can be derived from the others."""

    planned: int  # executors that the plan in force needs
    requested: int  # executors that were last requested from the cluster manager
    registered: tuple[str, ...]  # Spark's ids of the executors that accept tasks now
    groups: dict[str, tuple[str, ...]] = {}  # the registered executors of each group of the plan
    surplus: int = 0  # executors in groups that were not requested, or not any more

    @property
    def shared(self) -> tuple[str, ...]:
        """The registered executors without a group."""
        grouped = {executor for ids in self.groups.values() for executor in ids}
        return tuple(executor for executor in self.registered if executor not in grouped)

    def __str__(self) -> str:
        return f"{self.planned} executors planned, {self.requested} requested, {len(self.registered)} registered"


class Negotiator(Protocol):
    @property
    def slots_per_executor(self) -> int: ...

    def counts(self) -> ExecutorCounts: ...

    def check(self, slots: int) -> None:
        """Raise PenstockError if this number of slots can never be obtained here."""

    def check_groups(self, groups: Mapping[str, ExecutorGroup]) -> None:
        """Raise PenstockError if these groups can never be obtained here."""

    def profile(self, group: str) -> ResourceProfile:
        """Return the resource profile with which stages run on the executors of a group only."""

    def request(self, count: int, groups: Mapping[str, int] | None = None) -> None:
        """Request these total numbers of executors, without a group and in each group.

        They arrive later, or never; lost ones are replaced.
        """

    def release(self, ids: Sequence[str]) -> None:
        """Remove executors gracefully: each finishes its tasks and migrates its blocks first."""

    def start(self, slots: int | None, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        """Obtain the executors for the start of a run; return the slots that are available, those of groups included.

        None asks for the smallest possible number.
        """

    @property
    def rejections(self) -> int:
        """The number of executors that were rejected because they cannot access the run directory."""

    def admit_new(self) -> str | None:
        """Check the executors that have registered since the last check, and release those that must not be used.

        Return why an executor must not be used; None if all may be used.
        """

    def resize(self, slots: int, groups: Mapping[str, ExecutorGroup] | None = None) -> int:
        """Change the number of executors to that for `slots` and wait for the result.

        slots: all slots, those of the groups included. Groups that are not named lose their executors.

        Return the slots that are available afterwards, which may be fewer. Raises ExecutorsError if there are none, or
        if a group is not complete.
        """
