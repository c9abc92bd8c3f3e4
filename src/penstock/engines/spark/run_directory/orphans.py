"""The JVM of a killed driver keeps running for a moment. A run must not be resumed before that JVM has ended."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import psutil
from pyspark.sql import SparkSession

from penstock.engines.spark.jvm import jvm_pid
from penstock.engines.spark.storage.atomic_files import write_atomically

_FILE = "jvm.json"
_TIMEOUT_S = 15.0


class _Jvm(msgspec.Struct):
    pid: int
    created_s: float


def note_jvm(run: Path, spark: SparkSession) -> None:
    """Record which JVM works on this run."""
    pid = jvm_pid(spark)
    if pid is not None:
        jvm = _Jvm(pid=pid, created_s=psutil.Process(pid).create_time())
        write_atomically(run / _FILE, msgspec.json.encode(jvm))


def forget_jvm(run: Path) -> None:
    """Note that the run has stopped cleanly. Its JVM may continue for a while, but it works on nothing."""
    (run / _FILE).unlink(missing_ok=True)


def await_orphan(run: Path) -> None:
    """Wait for the JVM of an earlier driver to end, and kill it after a timeout, because its driver is dead."""
    try:
        jvm = msgspec.json.decode((run / _FILE).read_bytes(), type=_Jvm)
        process = psutil.Process(jvm.pid)
    except (FileNotFoundError, msgspec.DecodeError, psutil.NoSuchProcess):
        return
    if abs(process.create_time() - jvm.created_s) > 1.0 or process.pid in _children():
        return  # another process with the same id, or our own JVM
    with contextlib.suppress(psutil.NoSuchProcess):
        try:
            process.wait(timeout=_TIMEOUT_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(timeout=_TIMEOUT_S)


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}
