"""Checks that the driver and a task on an executor see each other's files in the run directory.

State, channels and outputs of a run are files. An executor that writes them to a disk of its own loses them with its
machine, and the run cannot continue.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from uuid import uuid4

_FOLDER = "access"
_UNREADABLE = "a file that the driver wrote there is not visible to it"
_UNWRITABLE = "a file that it wrote there is not visible to the driver"


class DirectoryProbe:
    """One check of a directory. It is created in the driver and sent to tasks."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / _FOLDER
        self._id = uuid4().hex
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / self._id).write_text(self._id)

    def try_from_task(self, task: str) -> str | None:
        """Read the driver's file and write one for the driver; return why that failed, or None. Runs in a task."""
        try:
            if (self._folder / self._id).read_text() != self._id:
                return _UNREADABLE
        except FileNotFoundError:
            return _UNREADABLE
        except OSError as error:
            return f"the driver's file cannot be read there ({error.strerror})"
        try:
            with self._file_of(task).open("w") as file:
                file.write(self._id)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"a file cannot be written there ({error.strerror})"
        return None

    def confirm_in_driver(self, task: str) -> str | None:
        """Return why the driver does not see the file of a task, or None if it does."""
        try:
            return None if self._file_of(task).read_text() == self._id else _UNWRITABLE
        except OSError:
            return _UNWRITABLE

    def close(self) -> None:
        """Delete the files of this check."""
        with contextlib.suppress(OSError):  # an executor may hold a file open on a network disk
            for path in self._folder.glob(f"{self._id}*"):
                path.unlink(missing_ok=True)
            self._folder.rmdir()

    def _file_of(self, task: str) -> Path:
        return self._folder / f"{self._id}.{task}"
