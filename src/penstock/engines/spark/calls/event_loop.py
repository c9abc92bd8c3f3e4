"""Calls as coroutines, on an event loop in a thread of its own.

A coroutine that is given up is cancelled. One that blocks the loop, or that ignores its cancellation, counts as
abandoned until it returns.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from traceback import FrameSummary
from types import FrameType
from typing import Any

from penstock.dataflow.code_location import source_file, waiting_line
from penstock.engines.spark.calls.outcome import Outcome

THREAD_NAME = "penstock event loop"
_END_TIMEOUT_S = 2.0


class EventLoop:
    """An event loop in a daemon thread. Use it as a context manager, or call `close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """Run a coroutine on the loop and return its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel all coroutines and end the thread, unless a coroutine blocks it."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_END_TIMEOUT_S)


class Coroutines:
    """Calls an `async def` function on an event loop, which outlives this object."""

    def __init__(
        self, function: Callable[..., Coroutine[Any, Any, Any]], events: EventLoop, arguments: tuple[Any, ...] = ()
    ) -> None:
        """`arguments` follow the row in each call."""
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._function, self._arguments = function, arguments
        self._loop = events.loop
        self._in_progress: set[int] = set()
        self._abandoned: set[int] = set()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._lock = threading.Lock()  # guards the three fields above

    @property
    def abandoned(self) -> int:
        with self._lock:
            return len(self._abandoned)

    def start(self, number: int, row: dict[str, Any]) -> None:
        with self._lock:
            self._in_progress.add(number)
        self._loop.call_soon_threadsafe(self._begin, number, row)

    def abandon(self, number: int) -> FrameSummary | None:
        with self._lock:
            if number not in self._in_progress:
                return None
            self._in_progress.discard(number)
            self._abandoned.add(number)
            task = self._tasks.get(number)
        if task is None:
            return None
        lines = [waiting_line(frame, source_file(self._function)) for frame in _frames(task)]
        self._loop.call_soon_threadsafe(task.cancel)
        return next((line for line in reversed(lines) if line is not None), None)

    def close(self) -> None:
        with self._lock:
            in_progress = tuple(self._in_progress)
        for number in in_progress:
            self.abandon(number)

    def _begin(self, number: int, row: dict[str, Any]) -> None:
        with self._lock:
            if number in self._abandoned:
                self._abandoned.discard(number)
                return
            task = self._tasks[number] = self._loop.create_task(self._call(row))
        task.add_done_callback(functools.partial(self._end, number, time.perf_counter()))

    async def _call(self, row: dict[str, Any]) -> tuple[Any, BaseException | None]:
        try:
            result = await self._function(row, *self._arguments)
            return result if result is None or isinstance(result, dict) else list(result), None
        except (KeyboardInterrupt, SystemExit) as error:  # raised here, they would end the event loop
            return None, error

    def _end(self, number: int, began_s: float, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        with self._lock:
            del self._tasks[number]
            self._in_progress.discard(number)
            if number in self._abandoned:
                self._abandoned.discard(number)
                return
        result = None
        if error is None:
            result, error = task.result()
        ended_s = time.perf_counter()
        self.outcomes.put(Outcome(number, result, error, ended_s - began_s, ended_s))


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a coroutine and of those that it awaits, outermost first."""
    frames: list[FrameType] = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None)
        if frame is not None:
            frames.append(frame)
        waiting = getattr(waiting, "cr_await", None)
    return frames
