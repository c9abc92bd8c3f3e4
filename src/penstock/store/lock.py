"""The lock of a run directory: at most one process runs there, and other processes can see which one.

The kernel lock on the open file decides which process may write, so a killed run leaves nothing to clean up. The file
also contains the owner's process id and start time. Other processes use them to name the owner and to check that it is
alive. The start time is needed because process ids are reused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

import msgspec

from penstock.store.errors import DirectoryInUseError, StoreError

FILE = "lock"
# psutil adds the boot time, which the kernel rounds to seconds and shifts when the clock is corrected.
_START_TIME_TOLERANCE_S = 2.0


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The process that holds a lock."""

    pid: int
    create_time_s: float

    def alive(self) -> bool:
        import psutil

        try:
            process = psutil.Process(self.pid)
            dead = process.status() == psutil.STATUS_ZOMBIE
            return not dead and abs(process.create_time() - self.create_time_s) < _START_TIME_TOLERANCE_S
        except psutil.NoSuchProcess:
            return False


class RunLock:
    """Hold the lock of `run_dir` from construction until `release`, or until the process ends in any way.

    Raises DirectoryInUseError if another process holds it, and StoreError if the directory cannot be created.
    """

    def __init__(self, run_dir: Path) -> None:
        import psutil

        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(run_dir / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(
                f"Cannot use '{run_dir}' as a run directory ({error.strerror}); give another directory."
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            holder = _read(run_dir)
            raise DirectoryInUseError(
                f"Process {holder.pid if holder else '(unknown)'} is running in '{run_dir}'; a directory can have only "
                "one run at a time.",
                holder.pid if holder else None,
            ) from None
        this_process = Owner(pid=os.getpid(), create_time_s=psutil.Process().create_time())
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, msgspec.json.encode(this_process), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)  # Do not unlink: another process may be waiting for a lock on this file.
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def owner(run_dir: Path) -> Owner | None:
    """Return the process that runs in `run_dir` now, or None if there is none or it was killed."""
    holder = _read(run_dir)
    return holder if holder is not None and holder.alive() and _is_locked(run_dir) else None


def _is_locked(run_dir: Path) -> bool:
    """Check the kernel lock too: a copied directory names the owner of the original but is not locked."""
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
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):  # no owner, or killed while taking the lock
        return None
