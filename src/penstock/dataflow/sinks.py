"""Sinks: declarations of where results are written. Engines implement them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.dataflow.argument_types import check_parameters, checked_types
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.existing import Existing, checked_existing
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.local_paths import local_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Parquet:
    """Parquet files in one folder."""

    path: str
    existing: Existing = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Rows that the run keeps; for tests and small results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noop:
    """No output: everything is computed and nothing is kept. It is used to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachBatch:
    """A function of a DataFrame and a batch number."""

    fn: Callable[[Any, int], None]


Sink = Parquet | Memory | Noop | ForeachBatch | Kafka


@checked_types(DataflowError)
def parquet(path: str | Path, *, existing: Existing = "error") -> Parquet:
    """Return a sink that writes each batch exactly once as Parquet files.

    Args:
        path: Folder on a local or shared disk. A relative path refers to the current working directory.
        existing: Treatment of output of another run or program in the folder: "error" refuses to start, "overwrite"
            deletes that output when the new run has started, and "append" keeps it beside the new rows. A resumed run
            continues its own output in any case.

    Raises:
        DataflowError: The path is a URL such as s3a://..., or `existing` has another value.
    """
    return Parquet(path=str(Path(local_path(path)).absolute()), existing=checked_existing("parquet", existing))


def memory() -> Memory:
    """Return a sink that keeps all rows in the run, for tests and small results. Read them with `run.rows(name)`.

    `penstock.open_run(directory).rows(name)` reads them in another process, also after the run.
    """
    return Memory()


def noop() -> Noop:
    """Return a sink that writes nothing, for measurements."""
    return Noop()


@checked_types(DataflowError)
def foreach_batch(fn: Callable[[Any, int], None]) -> ForeachBatch:
    """Return a sink that calls a function for each batch.

    Args:
        fn: Function of a DataFrame and a batch number, as in PySpark's `foreachBatch`. The number counts the batches of
            this sink from 0 and never goes back, also over plan changes and restarts. After a failure the function may
            be called again with the last number and the same rows, so it must write idempotently under that number.
            A batch may have no rows; the first one after a start usually has none.
    """
    check_parameters(fn, "foreach_batch()", "a DataFrame", "a batch number")
    return ForeachBatch(fn=fn)
