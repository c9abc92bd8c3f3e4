"""The run's record in SQLite: windows, decisions, changes, errors. One writer, many readers, safe after kill -9."""

from penstock.store.errors import StoreError, UnkeepableError
from penstock.store.lock import Owner, RunLock, owner
from penstock.store.reader import StoreReader
from penstock.store.records import RULE, STUDY, WATCHED, Decided, Declared, PlanChange, Run, RunError, Trial, declared
from penstock.store.store import Store

__all__ = [
    "RULE",
    "STUDY",
    "WATCHED",
    "Decided",
    "Declared",
    "Owner",
    "PlanChange",
    "Run",
    "RunError",
    "RunLock",
    "Store",
    "StoreError",
    "StoreReader",
    "Trial",
    "UnkeepableError",
    "declared",
    "owner",
]
