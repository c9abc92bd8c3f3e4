"""What the engine asks of whatever it simulates: rows one by one, micro-batches, or a fluid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np

from penstock.engines.simulated.counts import Counts
from penstock.engines.simulated.rates import RateSteps
from penstock.plan import Plan


class World(Protocol):
    @property
    def counts(self) -> Counts: ...

    @property
    def now_s(self) -> float: ...

    def advance(self, until_s: float) -> None:
        """Time passes."""

    def replan(self, plan: Plan) -> None:
        """Another plan from now on; rows that wait stay."""

    def stand_still(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        """From now on these, and only these, do nothing; what they were at is begun anew later."""

    def set_rate(self, source: str, rates: RateSteps) -> None: ...

    def waiting(self) -> np.ndarray:
        """By operator: rows at its entrance."""

    def in_hand(self) -> np.ndarray:
        """By operator: rows that are being worked on."""

    def idle(self) -> bool:
        """Sources have ended and nothing waits or is worked on."""
