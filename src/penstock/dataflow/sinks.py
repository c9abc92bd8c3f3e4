"""Where results go: declarations only; an engine gives them life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.dataflow.kafka import Kafka
from penstock.dataflow.paths import local_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Parquet:
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Rows kept by the run and read back with `run.rows("name")`; for tests and small results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noop:
    """Computes everything and keeps nothing; for measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachBatch:
    """A function of (DataFrame, batch key). After a failure the same key may come again: write idempotently."""

    fn: Callable[[Any, str], None]


Sink = Parquet | Memory | Noop | ForeachBatch | Kafka


def parquet(path: str | Path) -> Parquet:
    """Parquet files in one folder of a local or shared disk, each batch exactly once.

    A relative path is of the folder in which it is declared.
    """
    return Parquet(path=str(Path(local_path(path)).absolute()))


def memory() -> Memory:
    return Memory()


def noop() -> Noop:
    return Noop()


def foreach_batch(fn: Callable[[Any, str], None]) -> ForeachBatch:
    return ForeachBatch(fn=fn)
