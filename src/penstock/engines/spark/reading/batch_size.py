"""How many rows the next batch takes: as many as fit the time that a batch should last.

Spark asks for the next offset when a batch is done, so the time between two questions is what the last batch took. Part
of it a batch costs however few its rows; fewer rows do not make that part shorter, so a batch always gets at least as
much time for its rows as goes into that. Batches of different sizes show it, those of one size do not. The first of a
process say nothing of it: workers start, code is cold.
Where more rows wait than a batch may have, batches get longer, up to `_STRETCH` times: of a long one less is overhead.

What fits is kept in a file: a query that is started again, with other replicas or after a crash, need not find out
again, with a batch that is far too large for what its operators cost.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import linear_regression

import msgspec

FIRST_ROWS = 500
_FOLDER = "batches"  # of a run
GROWTH = 4.0
_COLD = 3  # batches
_STRETCH = 4.0
_DISTINCT = 2.0  # times as many rows as another batch has
_WORTH_KEEPING = 1.25  # times what is kept


class Kept(msgspec.Struct, frozen=True):
    rows: float  # a replica
    overhead_s: float
    stretch: float = 1.0


class BatchSizer:
    """
    >>> now = iter([0.0, 0.5, 2.5, 5.5]).__next__
    >>> sizer = BatchSizer(target_s=2.0, clock=now)
    >>> for _ in range(4):
    ...     rows = sizer.room()
    ...     print(rows)
    ...     sizer.gave(rows, left=False)
    500
    2000
    2000
    1333
    """

    def __init__(
        self,
        target_s: float,
        *,
        most_rows: int | None = None,
        replicas: int = 1,
        kept_in: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target_s = target_s
        self._most = most_rows
        self._replicas = replicas
        self._kept_in = kept_in
        self._clock = clock
        self._asked_at = 0.0
        self._given = 0
        self._kept = _kept(kept_in)
        self._cap = float(FIRST_ROWS) if self._kept is None else max(1.0, self._kept.rows * replicas)
        self._before_s = 0.0 if self._kept is None else self._kept.overhead_s  # the overhead of earlier starts
        self._overhead_s = math.inf if self._kept is None else self._kept.overhead_s
        self._cold = _COLD  # batches that are left to come
        self._last: deque[tuple[int, float]] = deque(maxlen=32)  # batches: rows, and what they took
        self._stretch = 1.0 if self._kept is None else self._kept.stretch

    @staticmethod
    def of(options: Mapping[str, str]) -> BatchSizer:
        """As a reader's options say."""
        return BatchSizer(
            float(options["batch_s"]),
            most_rows=int(options["most_rows"]) if options["most_rows"] else None,
            replicas=int(options["replicas"]),
            kept_in=Path(options["run"], _FOLDER, options["name"]),
        )

    def room(self) -> int:
        """How many rows the next batch may have."""
        now = self._clock()
        if self._given > 0:
            took = max(now - self._asked_at, 1e-3)
            overhead = self._overhead(took)
            budget = max(self._target_s * self._stretch, 2 * overhead) - overhead
            least_s = budget / GROWTH
            fit = self._given * budget / max(took - overhead, least_s)
            if fit < self._cap and took - overhead > least_s:  # few rows that were quick say nothing of many
                # Slowly down: a cold start is slow, and says little of the batches to come.
                self._cap = max(1.0, self._cap / 2, fit)
            elif self._given >= self._cap * 0.5:  # only a full batch says that a fuller one would do
                self._cap = min(fit, self._cap * GROWTH)
            self._keep(overhead)
        self._asked_at, self._given = now, 0
        return int(self._cap) if self._most is None else min(int(self._cap), self._most)

    def gave(self, rows: int, *, left: bool) -> None:
        """How many it was given, which may be more where rows come in lumps, and whether others had to stay."""
        self._given = rows
        self._stretch = min(_STRETCH, self._stretch * 1.5) if left else max(1.0, self._stretch / 1.5)

    def _overhead(self, took: float) -> float:
        """Of a batch, after one that took so long."""
        self._cold -= 1
        if self._cold >= 0:
            return min(self._before_s, took)
        self._last.append((self._given, took))
        rows, times = zip(*self._last, strict=True)
        if max(rows) >= _DISTINCT * min(rows):
            self._overhead_s = max(0.0, linear_regression(rows, times).intercept)
        self._overhead_s = min(self._overhead_s, *times)
        return self._overhead_s

    def _keep(self, overhead_s: float) -> None:
        rows = self._cap / self._replicas
        if self._kept is not None and 1 / _WORTH_KEEPING < rows / self._kept.rows < _WORTH_KEEPING:
            return
        self._kept = Kept(rows, overhead_s, self._stretch)
        if self._kept_in is not None:
            self._kept_in.parent.mkdir(exist_ok=True)
            self._kept_in.write_bytes(msgspec.json.encode(self._kept))


def carry_over(old: Path, new: Path) -> None:
    """What fits, from one run's directory to that of another run of the same dataflow."""
    if (kept := old / _FOLDER).is_dir():
        shutil.copytree(kept, new / _FOLDER, dirs_exist_ok=True)


def _kept(file: Path | None) -> Kept | None:
    """A file that a crash left half-written says nothing."""
    try:
        return None if file is None else msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None
