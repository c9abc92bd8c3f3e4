"""A query's checkpoint on disk: what it has committed, and how to hand it on to another query."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

from penstock.engines.spark.storage.files import copy_tree, write_whole

TICK = "tick"  # see readers.Progress: it moves an offset without moving its place
Offsets = dict[str, dict[str, int]]  # source name -> offset


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def committed(self) -> int | None:
        """The last batch that is committed, None before the first."""
        return self._last("commits")

    def planned(self) -> int | None:
        """The last batch whose offsets are written down."""
        return self._last("offsets")

    def interrupted(self) -> bool:
        """Whether a batch was begun and not committed."""
        planned, committed = self.planned(), self.committed()
        return planned is not None and (committed is None or planned > committed)

    def has_state(self) -> bool:
        """A function of a keyed operator may well keep none."""
        return (self.folder / "state").exists()

    def offsets(self, batch: int | None) -> Offsets:
        """Where each named source stood at the end of a batch; sources that had nothing yet are missing."""
        return {name: place_of(offset) for name, offset in self._raw(batch).items()} if batch is not None else {}

    def ticks(self) -> dict[int, str]:
        """Which named source the offsets with this tick are of, in the last batch that was planned."""
        planned = self.planned()
        raw = self._raw(planned) if planned is not None else {}
        found = {offset[TICK]: name for name, offset in raw.items() if TICK in offset}
        return found if len(found) == len(raw) else {}

    def hand_on(self, target: Path) -> Checkpoint:
        """A copy for another query to go on from; this one stays as it is, to come back to."""
        copy_tree(self.folder, target)
        # Two queries of one id stop each other.
        _rewrite(target / "metadata", json.dumps({"id": str(uuid4())}).encode())
        # transformWithState notes the full path of its schema's file.
        here, there = f"/{self.folder.name}/state/".encode(), f"/{target.name}/state/".encode()
        for path in target.glob("state/*/_metadata/**/*"):
            if path.is_file() and not path.name.endswith(".crc") and here in (content := path.read_bytes()):
                _rewrite(path, content.replace(here, there))
        return Checkpoint(target)

    def _raw(self, batch: int) -> Offsets:
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        found: Offsets = {}
        for line in lines[2:]:  # the version, then the batch's metadata, then one line a source
            name, separator, offset = line.partition(":")
            if separator and name.isidentifier() and offset.startswith("{"):
                found[name] = json.loads(offset)
        return found

    def _last(self, kind: str) -> int | None:
        folder = self.folder / kind
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        return max(numbers, default=None)


def place_of(offset: dict[str, int]) -> dict[str, int]:
    """An offset without its tick."""
    return {unit: at for unit, at in offset.items() if unit != TICK}


def _rewrite(path: Path, content: bytes) -> None:
    """Other content under the same name: a new file, since the old one is shared, and without its old checksum."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    write_whole(path, content)
