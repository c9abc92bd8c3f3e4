"""What a change of plan is about to do, written down before it does anything: so a crash in its middle can be told."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.engines.spark.storage.files import write_whole


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    generation: int
    changed: str  # in words


class Journal:
    def __init__(self, run: Path) -> None:
        self._path = run / "intent.json"

    def write(self, generation: int, changed: str) -> None:
        write_whole(self._path, msgspec.json.encode(Intent(generation=generation, changed=changed)))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def cut_off(self, committed: int) -> list[str]:
        """What became of a change that a crash has cut off; it is told of once."""
        try:
            intent = msgspec.json.decode(self._path.read_bytes(), type=Intent)
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        self.clear()
        became = "it is in force" if intent.generation <= committed else "the plan before it is in force"
        return [f"the run ended in the middle of a change of plan ({intent.changed}); {became}"]
