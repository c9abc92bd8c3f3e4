"""The lock of a run's directory: one process at a time runs there, and others can see which.

The kernel's lock on the open file decides who may write, so a killed run leaves nothing to clean up. The text in the
file (process id and its start time) is for everybody else: to name the owner, and to see whether it is still alive. A
process id alone would not do, because ids are reused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

import msgspec

from penstock.store.errors import HeldError, StoreError

FILE = "lock"
# psutil adds the boot time, which the kernel rounds to seconds and shifts when the clock is set right.
_SAME_START_S = 2.0


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    create_time_s: float

    def alive(self) -> bool:
        import psutil

        try:
            process = psutil.Process(self.pid)
            dead = process.status() == psutil.STATUS_ZOMBIE
            return not dead and abs(process.create_time() - self.create_time_s) < _SAME_START_S
        except psutil.NoSuchProcess:
            return False


class RunLock:
    """Held from construction until `release`, or until the process ends in any way."""

    def __init__(self, run_dir: Path) -> None:
        import psutil

        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(run_dir / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(
                f"'{run_dir}' is no place for a run ({error.strerror}); give another directory with --at"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            named = _read(run_dir)
            raise HeldError(
                f"process {named.pid if named else 'unknown'} is running in '{run_dir}', and a directory has one run "
                "at a time",
                named.pid if named else None,
            ) from None
        mine = Owner(pid=os.getpid(), create_time_s=psutil.Process().create_time())
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, msgspec.json.encode(mine), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)  # not unlinked: somebody may be waiting on this very file
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def owner(run_dir: Path) -> Owner | None:
    """Who runs here now; None if nobody does, also if the last one was killed."""
    named = _read(run_dir)
    return named if named is not None and named.alive() and _held(run_dir) else None


def _held(run_dir: Path) -> bool:
    """Not so in the copy of a directory, which names the process that runs in the original."""
    fd = os.open(run_dir / FILE, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _read(run_dir: Path) -> Owner | None:
    try:
        return msgspec.json.decode((run_dir / FILE).read_bytes(), type=Owner)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):  # nobody, or killed while taking it
        return None
