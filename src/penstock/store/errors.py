"""What goes wrong with a run's record."""

from __future__ import annotations

from penstock.dataflow.errors import PenstockError


class StoreError(PenstockError):
    """The store is absent, corrupt, not a store, or somebody else is writing it."""
