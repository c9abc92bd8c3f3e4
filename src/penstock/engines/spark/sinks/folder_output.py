"""A folder of Parquet files as an output that belongs to a run. Names that begin with '_' or '.' are no data for Spark.

The record of its owners is `_owners.json`. It changes only under a file lock, which the system releases when a process
ends. Each batch is published under the same lock, so that a run never writes to a folder that it has lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.sinks.ownership import Claim, Ownership
from penstock.engines.spark.storage.atomic_files import write_atomically

BATCHES = "_batches"  # the last complete batch of each checkpoint
WRITING = "_writing"  # files of the batch that is being written
_OWNERS, _LOCK = "_owners.json", "_lock"
_KEPT = frozenset((BATCHES, WRITING, _OWNERS, _LOCK))
_TABLE_LOGS = ("_spark_metadata", "_delta_log")  # readers of such a folder ignore all files that its log does not name


class FolderOutput:
    """One folder, claimed by one sink of a run."""

    def __init__(self, folder: Path, claim: Claim) -> None:
        self.folder = folder
        self._claim = claim

    def check(self) -> None:
        """Raise PenstockError before anything runs if the sink may not write to the folder. Nothing is changed."""
        with self._readable():
            self._decide()

    def claim(self) -> None:
        """Record the sink as an owner of the folder, and delete earlier output if the sink overwrites it.

        A crash in the middle of the deletion leaves the folder to this run, which completes the deletion when it is
        started again.
        """
        with self._readable(), self._locked():
            record = self._decide()
            self._write(record)
            if record.is_overwriting:
                self._delete_contents()
                self._write(Ownership(owners=record.owners))

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the lock while a batch is published. Raises PenstockError if another run has taken the folder over."""
        with self._locked():
            record = self._read()
            if not record.includes(self._claim.owner):
                raise self._claim.lost_to(record)
            yield

    def _decide(self) -> Ownership:
        token = self._claim.owner.run
        has_own_rows = any(self.folder.glob(f"{BATCHES}/{token}-*")) or any(self.folder.glob(f"{token}-*"))
        record = self._claim.decide(self._read(), foreign=self._foreign(token), has_own_rows=has_own_rows)
        if record.is_overwriting:
            self._check_deletable()
        elif len(record.owners) > 1 or self._claim.existing == "append":
            self._check_appendable()
        return record

    def _foreign(self, token: str) -> str | None:
        for name in self._names():
            if name in _TABLE_LOGS or not name.startswith(("_", ".", f"{token}-")):
                return f"'{name}'" if name in _TABLE_LOGS else f"the file '{name}'"
        return None

    def _check_deletable(self) -> None:
        """Raise PenstockError if the folder contains anything that is not the output of a job."""
        where = f"Sink '{self._claim.owner.sink}': existing='overwrite' would delete"
        if Path(self._claim.owner.directory).is_relative_to(self.folder.resolve()):
            raise PenstockError(
                f"{where} the run directory '{self._claim.owner.directory}', which is inside of folder "
                f"'{self.folder}'; give another folder."
            )
        for name in self._names():
            is_partition = "=" in name and (self.folder / name).is_dir()
            if not name.startswith(("_", ".")) and not name.endswith(".parquet") and not is_partition:
                raise PenstockError(
                    f"{where} '{self.folder / name}', which is not Parquet output; remove it yourself, or give another "
                    "folder."
                )

    def _check_appendable(self) -> None:
        for name in self._names():
            if name in _TABLE_LOGS:
                raise PenstockError(
                    f"Sink '{self._claim.owner.sink}': folder '{self.folder}' contains '{name}', and its readers "
                    "ignore the files of other writers; give another folder."
                )

    def _delete_contents(self) -> None:
        for name in self._names():
            if name not in _KEPT:
                _delete(self.folder / name)
        for kept in (BATCHES, WRITING):
            for path in (self.folder / kept).glob("*"):
                _delete(path)

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.folder.iterdir())
        except FileNotFoundError:
            return []

    def _read(self) -> Ownership:
        try:
            return msgspec.json.decode((self.folder / _OWNERS).read_bytes(), type=Ownership)
        except FileNotFoundError:
            return Ownership()
        except msgspec.DecodeError as error:
            raise PenstockError(
                f"Sink '{self._claim.owner.sink}': '{self.folder / _OWNERS}' does not name the runs that own the "
                f"folder ({error}); restore it, or give another folder."
            ) from None

    def _write(self, record: Ownership) -> None:
        write_atomically(self.folder / _OWNERS, msgspec.json.encode(record))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                reason = "its disk does not support file locks"
            else:
                reason = error.strerror or str(error)
            raise PenstockError(
                f"Sink '{self._claim.owner.sink}': folder '{self.folder}' cannot be used: {reason}; give another "
                "folder, or correct the cause."
            ) from error


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
