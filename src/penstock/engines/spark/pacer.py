"""How many rows the next batch takes: as many as fit the time that a batch should last.

Spark asks for the next offset when a batch is done, so the time between two questions is what the last batch took.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_ROWS = 2_000
GROWTH = 4.0


class BatchSizer:
    """
    >>> now = iter([0.0, 0.5, 3.0]).__next__
    >>> sizer = BatchSizer(target_s=2.0, most_rows=None, clock=now)
    >>> for _ in range(3):
    ...     rows = sizer.room()
    ...     print(rows)
    ...     sizer.gave(rows)
    2000
    8000
    6400
    """

    def __init__(self, target_s: float, most_rows: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._target_s = target_s
        self._most = most_rows
        self._clock = clock
        self._asked_at = 0.0
        self._given = 0
        self._cap = float(FIRST_ROWS)

    def room(self) -> int:
        """How many rows the next batch may have."""
        now = self._clock()
        if self._given > 0:
            took = max(now - self._asked_at, 1e-3)
            # Only a full batch says what a full batch costs: a small one is all overhead.
            if self._given >= self._cap * 0.5 or took > self._target_s:
                fit = self._given * self._target_s / took
                # Slowly down: a cold start is slow, and says little of the batches to come.
                self._cap = max(1.0, self._cap / 2, min(fit, self._cap * GROWTH))
        self._asked_at, self._given = now, 0
        return int(self._cap) if self._most is None else min(int(self._cap), self._most)

    def gave(self, rows: int) -> None:
        """How many it was given, which may be more where rows come in lumps."""
        self._given = rows
