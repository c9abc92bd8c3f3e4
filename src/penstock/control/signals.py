"""Ctrl-C and SIGTERM as a question that the loop can ask."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """While it is open a first signal is remembered and a second one interrupts at once.

    Only the main thread may handle signals; elsewhere this sees none.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """May be called again: Spark puts a handler of its own in place as it starts."""
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(one, self._note)
                self._before.setdefault(one, before)

    def __enter__(self) -> StopSignals:
        self.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one, before in self._before.items():
            signal.signal(one, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name
