"""The run's record in SQLite: windows, plan changes, errors. One writer, many readers, safe after kill -9."""

from penstock.store.errors import StoreError
from penstock.store.lock import Owner, RunLock, owner
from penstock.store.reader import StoreReader
from penstock.store.records import PlanChange, Run, RunError
from penstock.store.store import Store

__all__ = ["Owner", "PlanChange", "Run", "RunError", "RunLock", "Store", "StoreError", "StoreReader", "owner"]
