"""The gate decides whether a query may take new rows. It makes plan changes atomic.

It also lets a query finish its last batch before it stops.

A query of generation g takes rows once the committed generation of the run has reached g, unless the query is held.
Both conditions are files of the run directory, because Spark calls Python sources in separate processes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

PLAN_FILE = "plan.json"


class _Generation(msgspec.Struct):
    generation: int


class Gate:
    """The gate of one query; `opens_at` is the generation of its plan."""

    def __init__(self, run: Path, query: str, opens_at: int) -> None:
        self._plan_file = run / PLAN_FILE
        self._hold_file = hold_file(run, query)
        self._opens_at = opens_at
        self._plan_committed = False

    def is_closed(self) -> bool:
        return not self.is_plan_committed() or self._hold_file.exists()

    def is_plan_committed(self) -> bool:
        """Return whether the plan of the query has been committed."""
        if not self._plan_committed:
            try:
                committed = msgspec.json.decode(self._plan_file.read_bytes(), type=_Generation).generation
            except FileNotFoundError:
                return False
            self._plan_committed = committed >= self._opens_at
        return self._plan_committed


def hold_file(run: Path, query: str) -> Path:
    """Return the file that holds a query while it exists."""
    return run / "hold" / query
