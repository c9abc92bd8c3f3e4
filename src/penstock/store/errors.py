"""Errors of the store."""

from __future__ import annotations

from penstock.dataflow.errors import PenstockError


class StoreError(PenstockError):
    """The store is missing, corrupt, not a Penstock store, or open for writing in another process."""


class DirectoryInUseError(StoreError):
    """Another process holds the lock of the directory. `pid` is its process id, if it wrote one."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class InvalidRecordError(StoreError):
    """The value cannot be read back after it is written, for example because it contains NaN. The store is intact."""
