"""What simulated trials share: their clock, and the cost of a row."""

from __future__ import annotations

from penstock.engines.simulated import SimulatedEngine

WAIT_S = 0.02
SLOTS_EACH = 2


class Time:
    """Of whichever engine is measured now."""

    engine: SimulatedEngine

    def time(self) -> float:
        return self.engine.clock.time()

    monotonic = time

    def sleep(self, seconds: float, /) -> None:
        self.engine.clock.sleep(seconds)
