"""The log of a channel: one file an entry, numbered without gaps, each created whole and once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.storage.files import create_once
from penstock.engines.spark.storage.row_files import RowFile


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    key: str  # of the producer's batch
    at_s: float
    files: tuple[RowFile, ...]
    rows: int
    latest_event_s: float | None = None


class Log:
    """Entries are immutable, so what was read once is remembered; the end is looked for behind where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self._known: dict[int, Entry] = {}
        self._end = 0

    def end(self) -> int:
        """The number behind the last entry.

        The last entry is never forgotten: where it is gone, others have appended and forgotten since this log was
        asked last, and what was remembered is a place that readers have behind them.
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
        if number not in self._known:
            if len(self._known) >= 4096:
                self._known.clear()
            self._known[number] = msgspec.json.decode(self._path(number).read_bytes(), type=Entry)
        return self._known[number]

    def entries(self, start: int, stop: int) -> list[Entry]:
        return [self.entry(number) for number in range(start, stop)]

    def append(self, entry: Entry) -> None:
        if not create_once(self._path(entry.number), msgspec.json.encode(entry)):
            raise PenstockError(
                f"two producers append to channel '{self.folder.parent}' (entry {entry.number} is there already); "
                "stop the run that does not belong to this directory"
            )

    def forget(self, before: int) -> list[Entry]:
        """Deletes entries below `before` and returns them; the last entry stays, for its key and its number."""
        forgotten = []
        for path in sorted(self.folder.glob("[0-9]*.json")):
            number = int(path.stem)
            if number >= min(before, self.end() - 1):
                break
            forgotten.append(self.entry(number))
            path.unlink(missing_ok=True)
            self._known.pop(number, None)
        return forgotten

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.json"
