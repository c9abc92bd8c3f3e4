"""Checks that the driver and a task on an executor see each other's files in the run directory and in output folders.

State, channels and outputs of a run are files. An executor that writes them to a disk of its own loses them with its
machine, and the run cannot continue.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

_FOLDER = ".access"  # readers of an output folder ignore names with a dot
_UNREADABLE = "a file that the driver wrote there is not visible to it"
_UNWRITABLE = "a file that it wrote there is not visible to the driver"


class DirectoryProbe:
    """One check of a run directory and of the folders of its sinks. It is created in the driver and sent to tasks."""

    def __init__(self, directory: Path, outputs: Sequence[Path] = ()) -> None:
        names = [f"the run directory '{directory}'", *(f"the output folder '{output}'" for output in outputs)]
        self._folders = [folder / _FOLDER for folder in (directory, *outputs)]
        self._names = names
        self._id = uuid4().hex
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / self._id).write_text(self._id)

    def try_from_task(self, task: str) -> str | None:
        """Read the driver's files and write files for the driver.

        Return the place where that failed, and why; None if it succeeded. Runs in a task.
        """
        for name, folder in zip(self._names, self._folders, strict=True):
            if (reason := self._try_folder(folder, task)) is not None:
                return f"{name}: {reason}"
        return None

    def _try_folder(self, folder: Path, task: str) -> str | None:
        try:
            if (folder / self._id).read_text() != self._id:
                return _UNREADABLE
        except FileNotFoundError:
            return _UNREADABLE
        except OSError as error:
            return f"the driver's file cannot be read there ({error.strerror})"
        try:
            with self._file_of(folder, task).open("w") as file:
                file.write(self._id)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"a file cannot be written there ({error.strerror})"
        return None

    def confirm_in_driver(self, task: str) -> str | None:
        """Return the place where the driver does not see the file of a task, and why; None if it sees all of them."""
        for name, folder in zip(self._names, self._folders, strict=True):
            try:
                is_there = self._file_of(folder, task).read_text() == self._id
            except OSError:
                is_there = False
            if not is_there:
                return f"{name}: {_UNWRITABLE}"
        return None

    def close(self) -> None:
        """Delete the files of this check."""
        for folder in self._folders:
            with contextlib.suppress(OSError):  # an executor may hold a file open on a network disk
                for path in folder.glob(f"{self._id}*"):
                    path.unlink(missing_ok=True)
                folder.rmdir()

    def _file_of(self, folder: Path, task: str) -> Path:
        return folder / f"{self._id}.{task}"
