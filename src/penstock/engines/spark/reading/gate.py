"""The gate: whether a query may take new rows. It is what makes a plan change atomic and a drain clean.

A query of generation g takes rows once the run's committed generation has reached g, and not while it is held. Both are
files of the run's directory, since Spark asks its Python sources in processes of their own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.engines.spark.run_directory.checkpoint import TICK
from penstock.engines.spark.storage.files import write_whole

COMMITTED = "plan.json"


class _Generation(msgspec.Struct):
    generation: int


class Gate:
    def __init__(self, run: str, query: str, opens_at: int) -> None:
        self._committed = Path(run) / COMMITTED
        self._hold = hold_file(Path(run), query)
        self._opens_at = opens_at
        self._opened = False

    def closed(self) -> bool:
        return not self.in_force() or self._hold.exists()

    def in_force(self) -> bool:
        """Whether the plan that the query is of has been committed."""
        if not self._opened:
            try:
                committed = msgspec.json.decode(self._committed.read_bytes(), type=_Generation).generation
            except FileNotFoundError:
                return False
            self._opened = committed >= self._opens_at
        return self._opened


class Tick:
    """A mark in the offsets that is new at each start of a query, so that its first batch runs even without rows.

    Spark forgets over a restart that a watermark has moved, and closes no window until the offsets move again.
    """

    def __init__(self, mark: str) -> None:
        self._mark = int(mark)

    def on(self, offset: dict[str, int]) -> dict[str, int]:
        return {**offset, TICK: self._mark}


def save_starts(run: Path, query: str, starts: dict[str, dict[str, int]]) -> None:
    """Where a query begins to read each of its named sources: known only when its predecessor has stopped."""
    write_whole(run / "starts" / query, msgspec.json.encode(starts))


def load_start(run: str, query: str, source: str) -> dict[str, int]:
    starts: dict[str, dict[str, int]] = msgspec.json.decode((Path(run) / "starts" / query).read_bytes())
    return starts[source]


def hold_file(run: Path, query: str) -> Path:
    return run / "hold" / query
