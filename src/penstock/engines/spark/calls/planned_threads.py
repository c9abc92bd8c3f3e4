"""The number of threads that the plan in force gives an operator, read on the worker while a task runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.plan.plan import Threads

_READ_EVERY_S = 0.5


class _Plan(msgspec.Struct):
    threads: dict[str, Threads] = {}


class _Committed(msgspec.Struct):
    plan: _Plan


def planned_threads(run: Path | None, operator: str, declared: int, replica: int = 0) -> Callable[[], int]:
    """Return a function that gives the current number of threads of a replica, and that may be called for each row.

    It reads the file of the committed plan twice per second. A change of plan thus reaches tasks that are running, and
    needs no restart. Without a run directory, or while its file cannot be read, the number stays as it was.
    """
    threads, read_again_s = declared, 0.0
    if run is None:
        return lambda: declared
    file = run / PLAN_FILE

    def current() -> int:
        nonlocal threads, read_again_s
        now = time.monotonic()
        if now >= read_again_s:
            read_again_s = now + _READ_EVERY_S
            with contextlib.suppress(OSError, msgspec.DecodeError):
                own = msgspec.json.decode(file.read_bytes(), type=_Committed).plan.threads.get(operator, threads)
                # A task of the plan before may have a number that the new plan does not have.
                threads = own if isinstance(own, int) else own[replica % len(own)]
        return threads

    return current
