"""A clock that shows simulated time."""

from __future__ import annotations

from collections.abc import Callable


class SimulatedClock:
    """The clock of a simulated engine, with the methods of the module `time` that the control loop uses.

    `sleep` advances the simulation.
    """

    def __init__(self, now_s: Callable[[], float], advance: Callable[[float], None], *, epoch_s: float) -> None:
        self._now_s = now_s
        self._advance = advance
        self._epoch_s = epoch_s

    def time(self) -> float:
        return self._epoch_s + self._now_s()

    def monotonic(self) -> float:
        return self._now_s()

    def sleep(self, seconds: float, /) -> None:
        if seconds > 0:
            self._advance(seconds)
