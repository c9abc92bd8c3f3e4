"""The clock and the cost per row of simulated trials."""

from __future__ import annotations

from penstock.engines.simulated import SimulatedEngine

WAIT_S = 0.02
SLOTS_EACH = 2


class Time:
    """The clock of the engine that is being measured."""

    engine: SimulatedEngine

    def time(self) -> float:
        return self.engine.clock.time()

    monotonic = time

    def sleep(self, seconds: float, /) -> None:
        self.engine.clock.sleep(seconds)
