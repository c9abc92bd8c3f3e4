"""The log of a channel: one file per entry, numbered without gaps. Each file is created completely and only once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.storage.atomic_files import create_exclusively
from penstock.engines.spark.storage.row_files import RowFile

_CACHED_ENTRIES = 4096


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One append to a channel."""

    number: int
    key: str  # key of the producer's batch
    at_s: float
    files: tuple[RowFile, ...]
    rows: int
    watermark_ms: int | None = None  # watermark of the producer's output


class Log:
    """Entries never change, so they are cached. The search for the end begins at the last known end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self._cache: dict[int, Entry] = {}
        self._end = 0

    def end(self) -> int:
        """Return the number after the last entry.

        The last entry is never deleted. If the entry before the cached end is missing, another process has appended and
        deleted entries since the last call, and the end is searched again.
        """
        end = self._end
        while True:
            if end == 0 or not self._path(end - 1).exists():
                numbers = [int(path.stem) for path in self.folder.glob("[0-9]*.json")]
                end = max(numbers) + 1 if numbers else 0
            while self._path(end).exists():
                end += 1
            if end == 0 or self._path(end - 1).exists():
                self._end = end
                return end

    def last(self) -> Entry | None:
        end = self.end()
        return self.entry(end - 1) if end else None

    def entry(self, number: int) -> Entry:
        if number not in self._cache:
            if len(self._cache) >= _CACHED_ENTRIES:
                self._cache.clear()
            self._cache[number] = msgspec.json.decode(self._path(number).read_bytes(), type=Entry)
        return self._cache[number]

    def entries(self, start: int, stop: int) -> list[Entry]:
        return [self.entry(number) for number in range(start, stop)]

    def append(self, entry: Entry) -> None:
        """Add an entry. Raises PenstockError if another process has added one with the same number."""
        if not create_exclusively(self._path(entry.number), msgspec.json.encode(entry)):
            raise PenstockError(
                f"two producers append to channel '{self.folder.parent}': entry {entry.number} exists already; stop "
                "the other run that uses this directory"
            )

    def delete_before(self, number: int) -> list[Entry]:
        """Delete the entries below a number and return them. The last entry stays, because its key is needed."""
        deleted = []
        for path in sorted(self.folder.glob("[0-9]*.json")):
            entry_number = int(path.stem)
            if entry_number >= min(number, self.end() - 1):
                break
            deleted.append(self.entry(entry_number))
            path.unlink(missing_ok=True)
            self._cache.pop(entry_number, None)
        return deleted

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.json"
