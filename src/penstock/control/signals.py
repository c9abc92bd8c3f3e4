"""Ctrl-C and SIGTERM as a question that the loop can ask."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

_TOGETHER_S = 1.0


class StopSignals:
    """While it is open a first signal is remembered and another one, a moment later or more, interrupts at once.

    Those that come together are one: 'timeout' and others signal a process and then its group.

    Only the main thread may handle signals; elsewhere this sees none.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._received_s = 0.0
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
        now_s = time.monotonic()
        if self.received is None:
            self.received, self._received_s = signal.Signals(number).name, now_s
        elif now_s - self._received_s > _TOGETHER_S:
            raise KeyboardInterrupt
