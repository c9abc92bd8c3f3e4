"""The processes of an executor are found by the options with which Spark starts it."""

from __future__ import annotations

import subprocess
import sys

from penstock.engines.spark.process_usage import executor_processes

# A parent with one child, as an executor with a Python worker. It ends with its input.
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']); print(flush=True); input()"


def started(*options: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()  # its child has been started
    return process


def test_an_executor_consists_of_its_process_and_the_workers_of_it() -> None:
    mine = started("--app-id", "app-1", "--executor-id", "3")
    others = [started("--app-id", "app-1", "--executor-id", "4"), started("--app-id", "app-2", "--executor-id", "3")]
    try:
        processes = executor_processes("app-1", ("3",))
        assert len(processes) == 2 and mine.pid in {process.pid for process in processes}
    finally:
        for process in (mine, *others):
            process.communicate()
