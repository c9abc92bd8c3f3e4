"""Ctrl-C and SIGTERM as a flag that the loop can poll."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

_TOGETHER_S = 1.0


class StopSignals:
    """A context in which the first signal is remembered and a later one raises KeyboardInterrupt.

    Within `interrupting` the first one raises KeyboardInterrupt as well. Signals within one second count as one:
    'timeout' and other tools signal a process and then its group. Only the main thread can handle signals; in other
    threads none are received.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._received_s = 0.0
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Install the handlers. Call it again after Spark has started, because Spark installs its own handler."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(number, self._note)
                self._before.setdefault(number, before)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let signals interrupt the calls within this context, such as the start of a run."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def __enter__(self) -> StopSignals:
        self.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.received is None:
            self.received, self._received_s = signal.Signals(number).name, now_s
            if self._interrupts:
                raise KeyboardInterrupt
        elif now_s - self._received_s > _TOGETHER_S:
            raise KeyboardInterrupt
