"""The JVM of an earlier start, with another process in its place."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.engines.spark.run_directory import orphans


@pytest.fixture
def orphan() -> Iterator[psutil.Process]:
    """Start a process whose parent has ended."""
    done = subprocess.run(
        ["sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    process = psutil.Process(int(done.stdout))
    yield process
    if process.is_running():
        process.kill()


def note(run: Path, process: psutil.Process) -> None:
    (run / "jvm.json").write_bytes(msgspec.json.encode({"pid": process.pid, "created_s": process.create_time()}))


def test_the_jvm_of_a_run_that_stopped_cleanly_is_not_awaited(tmp_path: Path, orphan: psutil.Process) -> None:
    """It may still write the archive of its classes."""
    note(tmp_path, orphan)
    orphans.forget_jvm(tmp_path)
    orphans.await_orphan(tmp_path)
    assert orphan.is_running()
