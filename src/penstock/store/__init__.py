"""The record of a run in SQLite: windows, decisions, plan changes, errors and trials.

One process writes, any number of processes read. The record survives `kill -9` of the writer.
"""

from penstock.store.errors import DirectoryInUseError, InvalidRecordError, StoreError
from penstock.store.lock import Owner, RunLock, owner
from penstock.store.reader import StoreReader
from penstock.store.records import (
    REPLICAS_BY_RULE,
    DecisionRecord,
    ErrorRecord,
    LatencyTarget,
    OperatorDeclaration,
    PlanChange,
    ProfiledOperator,
    ProfiledRegion,
    ProfileTrial,
    RunKind,
    RunStart,
    Trial,
    declarations,
)
from penstock.store.store import Store

__all__ = [
    "REPLICAS_BY_RULE",
    "DecisionRecord",
    "DirectoryInUseError",
    "ErrorRecord",
    "InvalidRecordError",
    "LatencyTarget",
    "OperatorDeclaration",
    "Owner",
    "PlanChange",
    "ProfileTrial",
    "ProfiledOperator",
    "ProfiledRegion",
    "RunKind",
    "RunLock",
    "RunStart",
    "Store",
    "StoreError",
    "StoreReader",
    "Trial",
    "declarations",
    "owner",
]
