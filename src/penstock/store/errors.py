"""What goes wrong with a run's record."""

from __future__ import annotations

from penstock.dataflow.errors import PenstockError


class StoreError(PenstockError):
    """The store is absent, corrupt, not a store, or somebody else is writing it."""


class HeldError(StoreError):
    """Another process runs in the directory; its id, where it has left one."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class UnkeepableError(StoreError):
    """A value that no reader could read back, such as one with NaN in it. The store is well."""
