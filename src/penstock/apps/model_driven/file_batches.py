"""Batched file writing: strings are kept in memory and written to a file of their own, a batch at a time.

The files are a side effect, as in the paper: exactly-once does not cover them. A batch that Spark repeats writes its
strings again. `written_strings` returns each string once, so repetitions do not matter to a reader. The strings in
memory are written when the client is closed; if the worker is killed, they are lost.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections import deque
from pathlib import Path

_KEPT_FILES = 10  # in a temporary folder


class FileBatches:
    """The client of the task `write`. Several threads may add strings."""

    def __init__(self, folder: str | None, batch_rows: int) -> None:
        """Without a folder, a temporary one keeps the latest files until the client is closed."""
        self._is_temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-files-") if folder is None else folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._batch_rows = batch_rows
        self._strings: list[str] = []
        self._files: deque[Path] = deque()
        self._lock = threading.Lock()

    def add(self, string: str) -> None:
        """Add a string to the current batch. If it completes the batch, write the file before returning."""
        with self._lock:
            self._strings.append(string)
            if len(self._strings) < self._batch_rows:
                return
            strings, self._strings = self._strings, []
            self._write(strings)

    def close(self) -> None:
        with self._lock:
            strings, self._strings = self._strings, []
            if self._is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)
            elif strings:
                self._write(strings)

    def _write(self, strings: list[str]) -> None:
        """Write a file in one step. Its name depends on the content, so an equal batch replaces it."""
        content = "".join(f"{string}\n" for string in strings).encode()
        file = self.folder / f"{hashlib.sha256(content).hexdigest()[:24]}.txt"
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(content)
        temporary.replace(file)
        self._files.append(file)
        if self._is_temporary and len(self._files) > _KEPT_FILES:
            self._files.popleft().unlink(missing_ok=True)


def written_strings(folder: Path) -> set[str]:
    """Return the strings in all files of a folder, each once."""
    return {line for file in folder.glob("*.txt") for line in file.read_text().splitlines()}
