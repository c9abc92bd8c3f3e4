"""What the engine asks of a source, whatever its kind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Offset = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a query reads a source."""

    name: str  # for Spark's source evolution
    replicas: int
    query: str
    opens_at: int
    run: Path
    batch_s: float
    most_rows: int | None

    def options(self) -> dict[str, str]:
        return {
            "name": self.name,
            "tick": str(time.time_ns() // 1_000_000),
            "timings": str(self.run / "timings" / self.name),
            "replicas": str(self.replicas),
            "query": self.query,
            "opens_at": str(self.opens_at),
            "run": str(self.run),
            "batch_s": str(self.batch_s),
            "most_rows": str(self.most_rows or ""),
        }


class StreamSource(Protocol):
    """A declared source brought to life in a run's directory."""

    def read(self, spark: Any, how: Reading) -> Any: ...

    def first(self) -> Offset: ...

    def available(self) -> Offset | None:
        """Behind the last row appended so far; None if only Spark knows."""

    def rows_between(self, start: Offset, end: Offset) -> int | None: ...

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]] | None:
        """(when, how many rows) for the rows between two offsets; None if it cannot be known."""

    def size_of(self, rows: int) -> tuple[int, int] | None:
        """Bytes of about so many of its first rows, and how many there were; None if it cannot be known."""

    def resume(self, read_up_to: Offset) -> None:
        """The run starts again after a break; rows before this offset have been read."""

    def set_rate(self, rows_per_s: float) -> None: ...

    def ended(self, at: Offset) -> bool:
        """Whether a reader at this offset has seen all that will ever come."""
