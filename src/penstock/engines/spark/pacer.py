"""How many rows the next batch takes: as many as fit the time that a batch should last.

Spark asks for the next offset when a batch is done, so the time between two questions is what the last batch took. Part
of it a batch costs however few its rows; fewer rows do not make that part shorter, so a batch always gets at least as
much time for its rows as goes into that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

FIRST_ROWS = 2_000
GROWTH = 4.0


class BatchSizer:
    """
    >>> now = iter([0.0, 0.5, 2.5, 5.5]).__next__
    >>> sizer = BatchSizer(target_s=2.0, most_rows=None, clock=now)
    >>> for _ in range(4):
    ...     rows = sizer.room()
    ...     print(rows)
    ...     sizer.gave(rows)
    2000
    8000
    8000
    4800
    """

    def __init__(self, target_s: float, most_rows: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._target_s = target_s
        self._most = most_rows
        self._clock = clock
        self._asked_at = 0.0
        self._given = 0
        self._cap = float(FIRST_ROWS)
        self._took: deque[float] = deque(maxlen=32)  # of the last batches

    def room(self) -> int:
        """How many rows the next batch may have."""
        now = self._clock()
        if self._given > 0:
            took = max(now - self._asked_at, 1e-3)
            self._took.append(took)
            overhead = min(self._took)
            budget = max(self._target_s, 2 * overhead) - overhead
            fit = self._given * budget / max(took - overhead, budget / GROWTH)
            if fit < self._cap:
                # Slowly down: a cold start is slow, and says little of the batches to come.
                self._cap = max(1.0, self._cap / 2, fit)
            elif self._given >= self._cap * 0.5:  # only a full batch says that a fuller one would do
                self._cap = min(fit, self._cap * GROWTH)
        self._asked_at, self._given = now, 0
        return int(self._cap) if self._most is None else min(int(self._cap), self._most)

    def gave(self, rows: int) -> None:
        """How many it was given, which may be more where rows come in lumps."""
        self._given = rows
