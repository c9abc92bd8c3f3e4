"""The rows of a task, read by a thread of its own.

Reading the next Arrow batch blocks while an earlier operator produces it. Deadlines, retries and outcomes of the calls
in flight must not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa

THREAD_NAME = "penstock input"
_AHEAD_BATCHES = 1  # read before they are needed


class RowInput:
    """Rows of Arrow batches with the times at which they were available. Close it after use."""

    def __init__(self, batches: Iterable[pa.RecordBatch], arrived: Callable[[], None]) -> None:
        """`arrived` is called by the thread that reads, after each batch and at the end."""
        self.has_ended = False  # all rows have been returned
        self.waited_s = 0.0  # in `wait`
        self._batches = iter(batches)
        self._arrived = arrived
        self._rows: deque[dict[str, Any]] = deque()
        self._read_s = 0.0
        self._read: SimpleQueue[tuple[pa.RecordBatch | BaseException | None, float]] = SimpleQueue()
        self._next: tuple[pa.RecordBatch | BaseException | None, float] | None = None
        self._is_closed = False
        self._may_read = threading.Semaphore(1 + _AHEAD_BATCHES)
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def take(self) -> tuple[dict[str, Any], float] | None:
        """Return a row and the time at which it was available, or None if no row is there now."""
        while True:
            if self._rows:
                return self._rows.popleft(), self._read_s
            if self.has_ended or not self._has_batch():
                return None
            self._open_batch()

    def wait(self) -> None:
        """Wait until `take` has a row, or all rows have been returned."""
        if not self._rows and self._next is None and not self.has_ended:
            began_s = time.perf_counter()
            self._next = self._read.get()
            self.waited_s += time.perf_counter() - began_s

    def close(self) -> None:
        """End the thread. A thread that is reading ends with its batch."""
        self._is_closed = True
        self._may_read.release()

    def _has_batch(self) -> bool:
        if self._next is None:
            try:
                self._next = self._read.get_nowait()
            except Empty:
                return False
        return True

    def _open_batch(self) -> None:
        assert self._next is not None
        (batch, self._read_s), self._next = self._next, None
        if isinstance(batch, BaseException):
            raise batch
        if batch is None:
            self.has_ended = True
            return
        options = {"maps_as_pydicts": "strict"} if "map<" in str(batch.schema.types) else {}
        self._rows.extend(batch.to_pylist(**options))
        self._may_read.release()

    def _run(self) -> None:
        batch: pa.RecordBatch | BaseException | None = None
        while True:
            self._may_read.acquire()
            if self._is_closed:
                return
            try:
                batch = next(self._batches, None)
            except BaseException as error:  # raised again in the thread of the task
                batch = error
            self._read.put((batch, time.monotonic()))
            self._arrived()
            if not isinstance(batch, pa.RecordBatch):
                return
