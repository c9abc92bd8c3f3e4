from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.store import Owner, RunLock, StoreError, owner

HOLD = """
import pathlib, sys, penstock.store
lock = penstock.store.RunLock(pathlib.Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


def test_the_owner_is_seen_while_it_lives_and_not_after_kill_9(tmp_path: Path) -> None:
    assert owner(tmp_path) is None
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    seen = owner(tmp_path)
    assert seen is not None and seen.pid == process.pid
    with pytest.raises(StoreError, match=f"Process {process.pid} is running"):
        RunLock(tmp_path)
    process.kill()
    process.communicate()
    assert owner(tmp_path) is None
    with RunLock(tmp_path):  # taken over
        mine = owner(tmp_path)
        assert mine is not None and mine.pid == os.getpid()
    assert owner(tmp_path) is None


def test_the_copy_of_a_directory_has_no_owner(tmp_path: Path) -> None:
    original, copy = tmp_path / "run", tmp_path / "copy"
    with RunLock(original):
        shutil.copytree(original, copy)
        assert owner(original) is not None and owner(copy) is None


def test_another_process_with_the_same_id_is_not_the_owner() -> None:
    me = psutil.Process()
    assert Owner(pid=me.pid, create_time_s=me.create_time()).alive()
    assert not Owner(pid=me.pid, create_time_s=me.create_time() - 3600).alive()


def test_a_zombie_runs_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    seen = Owner(pid=process.pid, create_time_s=psutil.Process(process.pid).create_time())
    assert seen.alive()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
    assert not seen.alive()
    process.communicate()


def test_a_lock_file_torn_by_a_crash_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1')
    assert owner(tmp_path) is None
    RunLock(tmp_path).release()


def test_a_directory_that_cannot_be_created_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "lock").mkdir(parents=True)
    for at in (Path("/proc/x/y"), tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken"):
        with pytest.raises(StoreError, match=f"Cannot use '{at}' as a run directory .*; give another directory"):
            RunLock(at)
