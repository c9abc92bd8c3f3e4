"""Calls in threads.

Python cannot end a thread. A call that is given up keeps its thread until it returns; its result is discarded, and the
thread then ends. Another thread takes its place at once. All threads are daemons, so none of them keeps a worker
process alive.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from traceback import FrameSummary
from typing import Any

from penstock.dataflow.code_location import source_file, waiting_line
from penstock.engines.spark.calls.outcome import Outcome

THREAD_NAME = "penstock call"


class CallThreads:
    """Calls `function` in as many threads as there are calls in progress. Threads are reused."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> None:
        """A call receives the row, followed by `arguments`."""
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._function, self._arguments = function, arguments
        self._calls: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
        self._threads = 0  # threads that take further calls
        self._in_progress: dict[int, int | None] = {}  # call -> identifier of its thread, once it has begun
        self._abandoned: set[int] = set()
        self._lock = threading.Lock()  # guards the three fields above

    @property
    def abandoned(self) -> int:
        with self._lock:
            return len(self._abandoned)

    def start(self, number: int, row: dict[str, Any]) -> None:
        with self._lock:
            self._in_progress[number] = None
            needs_thread = len(self._in_progress) > self._threads
            self._threads += needs_thread
        if needs_thread:
            threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()
        self._calls.put((number, row))

    def abandon(self, number: int) -> FrameSummary | None:
        with self._lock:
            if number not in self._in_progress:
                return None
            identifier = self._in_progress.pop(number)
            self._abandoned.add(number)
            self._threads -= 1
        frame = None if identifier is None else sys._current_frames().get(identifier)
        return None if frame is None else waiting_line(frame, source_file(self._function))

    def close(self) -> None:
        with self._lock:
            self._abandoned.update(self._in_progress)
            idle = self._threads - len(self._in_progress)
            self._in_progress.clear()
            self._threads = 0
        for _ in range(idle):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            number, row = call
            with self._lock:
                if number in self._in_progress:
                    self._in_progress[number] = threading.get_ident()
            began_s = time.perf_counter()
            result, error = None, None
            try:
                result = self._function(row, *self._arguments)
                if result is not None and not isinstance(result, dict):
                    result = list(result)  # a generator does its work here
            except BaseException as raised:  # also SystemExit, which would end the thread without an outcome
                error = raised
            ended_s = time.perf_counter()
            with self._lock:
                if number in self._abandoned:
                    self._abandoned.discard(number)
                    return  # another thread has taken its place
                self._in_progress.pop(number, None)
            self.outcomes.put(Outcome(number, result, error, ended_s - began_s, ended_s))
            del result, error, call, row  # an idle thread keeps no rows
