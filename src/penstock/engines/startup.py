"""Durations of the phases of a start."""

from __future__ import annotations

import time
from collections.abc import Callable


class StartupPhases:
    """Measures consecutive phases. Each call of `end` ends a phase and begins the next one.

    >>> clock = iter([10.0, 12.5, 13.0]).__next__
    >>> phases = StartupPhases(clock)
    >>> phases.end("Spark session")
    >>> phases.end("compilation")
    >>> phases.seconds
    {'Spark session': 2.5, 'compilation': 0.5}
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self.seconds: dict[str, float] = {}

    def end(self, phase: str) -> None:
        now_s = self._clock()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now_s - self._began_s
        self._began_s = now_s
