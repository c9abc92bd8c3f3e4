"""The process of a broker ends with its starter and with its supervisor, also after SIGKILL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from penstock.brokers import supervisor

_SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# Start a supervisor, print its process id, and wait to be killed.
_STARTER = f"""
import subprocess, sys, time
kept = subprocess.Popen([sys.executable, "-m", {supervisor.__name__!r}, *{_SLEEPER!r}], stdin=subprocess.PIPE)
print(kept.pid, flush=True)
time.sleep(600)
"""


def ended(process: psutil.Process) -> bool:
    """Return whether the process ends soon."""
    _, alive = psutil.wait_procs([process], timeout=60)
    return not alive


def child_of(pid: int) -> psutil.Process:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(pid).children()
        if children and "sleep" in " ".join(children[0].cmdline()):
            return children[0]
        time.sleep(0.02)
    raise AssertionError("the keeper has started nothing")


@pytest.fixture
def kept() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", supervisor.__name__, *_SLEEPER], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def test_a_broker_ends_when_its_starter_is_killed() -> None:
    starter = subprocess.Popen([sys.executable, "-c", _STARTER], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    sleeper = child_of(int(starter.stdout.readline()))
    starter.kill()
    starter.wait()
    assert ended(sleeper)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_broker_ends_when_its_supervisor_is_killed(kept: subprocess.Popen[bytes]) -> None:
    sleeper = child_of(kept.pid)
    kept.kill()
    assert ended(sleeper)


def test_a_released_broker_runs_until_it_is_stopped(kept: subprocess.Popen[bytes]) -> None:
    sleeper = child_of(kept.pid)
    assert kept.stdin is not None
    kept.stdin.write(supervisor.DETACH)
    kept.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        kept.wait(1.0)
    assert sleeper.is_running()
    kept.terminate()
    assert ended(sleeper)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_child_ends_if_its_parent_ended_before_they_were_linked() -> None:
    code = (
        "import os, time; from penstock import child_process; tied, parent = child_process.end_with_parent(), os.getpid()\n"
        "if os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: time.sleep(0.01)\n"
        "print('tied now', flush=True); tied(); print('it lives')"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"tied now\n"
