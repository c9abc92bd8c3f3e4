"""What goes wrong with a run's record."""

from __future__ import annotations

from penstock.dataflow.errors import PenstockError


class StoreError(PenstockError):
    """The store is absent, corrupt, not a store, or somebody else is writing it."""


class UnkeepableError(StoreError):
    """A value that no reader could read back, such as one with NaN in it. The store is well."""
