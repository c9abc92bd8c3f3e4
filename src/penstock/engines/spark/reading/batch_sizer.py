"""The number of rows that the next batch of a query may take.

Spark asks for the next offset when a batch has ended, so the time between two questions is the duration of the batch.
The overhead of a batch is estimated from batches of different sizes. The first batches of a process are left out of
the estimate, because workers start and code is cold.

The learned size is kept in a file. A query that restarts, with other replicas or after a crash, does not begin with a
batch that is far too large for its operators.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import linear_regression

import msgspec

from penstock.engines.batch_size import FIRST_BATCH_ROWS, next_limit, next_stretch

_FOLDER = "batches"  # in the run directory
_COLD_BATCHES = 3
_DISTINCT_SIZES = 2.0  # ratio of the largest to the smallest batch above which a regression is meaningful
_CHANGE_TO_SAVE = 1.25  # ratio of a new size to the saved one


class LearnedSize(msgspec.Struct, frozen=True, kw_only=True):
    """The batch size that a query has learned."""

    rows_per_replica: float
    overhead_s: float
    stretch: float = 1.0


class BatchSizer:
    """
    >>> now = iter([0.0, 0.5, 2.5, 5.5]).__next__
    >>> sizer = BatchSizer(target_s=2.0, clock=now)
    >>> for _ in range(4):
    ...     rows = sizer.limit()
    ...     print(rows)
    ...     sizer.took(rows, rows_left=False)
    500
    2000
    2000
    1333
    """

    def __init__(
        self,
        target_s: float,
        *,
        max_rows: int | None = None,
        replicas: int = 1,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_rows` bounds every batch; `file` keeps the learned size."""
        self._target_s = target_s
        self._max_rows = max_rows
        self._replicas = replicas
        self._file = file
        self._clock = clock
        self._asked_at = 0.0
        self._ended_at: float | None = None  # end of the last batch; None: it is not known yet
        self._batch_rows = 0
        self._saved = saved = _load(file)
        self._limit_rows = FIRST_BATCH_ROWS if saved is None else max(1.0, saved.rows_per_replica * replicas)
        self._earlier_overhead_s = 0.0 if saved is None else saved.overhead_s
        self._overhead_s = math.inf if saved is None else saved.overhead_s
        self._cold_batches_left = _COLD_BATCHES
        self._recent: deque[tuple[int, float]] = deque(maxlen=32)  # rows and seconds of batches
        self._stretch = 1.0 if saved is None else saved.stretch

    def batch_ended(self) -> None:
        """Note that the last batch has ended, even if no rows wait. Otherwise idle time would count as batch time."""
        if self._batch_rows > 0 and self._ended_at is None:
            self._ended_at = self._clock()

    def limit(self) -> int:
        """Return how many rows the next batch may have. Call it when the last batch has ended and rows wait."""
        now = self._clock()
        if self._batch_rows > 0:
            batch_s = max((now if self._ended_at is None else self._ended_at) - self._asked_at, 1e-3)
            overhead_s = self._update_overhead(batch_s)
            self._limit_rows = next_limit(
                self._limit_rows, self._batch_rows, batch_s, overhead_s, self._target_s, self._stretch
            )
            self._save(overhead_s)
        self._asked_at, self._ended_at, self._batch_rows = now, None, 0
        return int(self._limit_rows) if self._max_rows is None else min(int(self._limit_rows), self._max_rows)

    def took(self, rows: int, *, rows_left: bool) -> None:
        """Note how many rows the batch has, which may exceed the limit, and whether rows are left over."""
        self._batch_rows = rows
        self._stretch = next_stretch(self._stretch, rows_left)

    def _update_overhead(self, batch_s: float) -> float:
        self._cold_batches_left -= 1
        if self._cold_batches_left >= 0:
            return min(self._earlier_overhead_s, batch_s)
        self._recent.append((self._batch_rows, batch_s))
        rows, seconds = zip(*self._recent, strict=True)
        if max(rows) >= _DISTINCT_SIZES * min(rows):
            self._overhead_s = max(0.0, linear_regression(rows, seconds).intercept)
        self._overhead_s = min(self._overhead_s, *seconds)
        return self._overhead_s

    def _save(self, overhead_s: float) -> None:
        rows = self._limit_rows / self._replicas
        saved = self._saved
        if saved is not None and 1 / _CHANGE_TO_SAVE < rows / saved.rows_per_replica < _CHANGE_TO_SAVE:
            return
        self._saved = LearnedSize(rows_per_replica=rows, overhead_s=overhead_s, stretch=self._stretch)
        if self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_bytes(msgspec.json.encode(self._saved))


def size_file(run: Path, source: str) -> Path:
    """Return the file that keeps the learned batch size of a source or channel."""
    return run / _FOLDER / source


def copy_learned_sizes(old: Path, new: Path) -> None:
    """Copy the learned batch sizes from one run directory to that of another run of the same dataflow."""
    if (sizes := old / _FOLDER).is_dir():
        shutil.copytree(sizes, new / _FOLDER, dirs_exist_ok=True)


def _load(file: Path | None) -> LearnedSize | None:
    """Return the saved size, or None if there is none or a crash left the file incomplete."""
    try:
        return None if file is None else msgspec.json.decode(file.read_bytes(), type=LearnedSize)
    except (OSError, msgspec.DecodeError):
        return None
