"""The journal of plan changes: the intent is written first, so that a resumed run can report an interrupted change."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.engines.spark.storage.atomic_files import write_atomically


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    generation: int
    changed: str  # a description of the difference


class Journal:
    def __init__(self, run: Path) -> None:
        self._path = run / "intent.json"

    def write(self, generation: int, changed: str) -> None:
        write_atomically(self._path, msgspec.json.encode(Intent(generation=generation, changed=changed)))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def report_interrupted(self, committed: int) -> list[str]:
        """Return a message about a change that a crash interrupted, if there is one, and clear the journal.

        `committed` is the generation of the plan in force.
        """
        try:
            intent = msgspec.json.decode(self._path.read_bytes(), type=Intent)
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        self.clear()
        in_force = "the new plan" if intent.generation <= committed else "the previous plan"
        return [f"the run ended during a change of plan ({intent.changed}); {in_force} is in force"]
