"""The interface between the engine and the simulation modes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np

from penstock.engines.simulated.compiled.counts import SimulationCounts
from penstock.engines.simulated.source_load import RateSteps
from penstock.plan import Plan


class SimulationMode(Protocol):
    """A dataflow under a plan in simulated time: row by row, in micro-batches or as a fluid."""

    @property
    def counts(self) -> SimulationCounts: ...

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def advance(self, until_s: float) -> None:
        """Simulate until the time `until_s`."""

    def change_plan(self, plan: Plan) -> None:
        """Use another plan from now on. Waiting rows, including rows that wait for a pair, stay at their operators."""

    def suspend(self, *, pipelines: Collection[str], executors: Collection[int]) -> None:
        """Suspend these pipelines and executors and resume all others. Interrupted work starts again on resumption."""

    def set_rate(self, source: str, rates: RateSteps) -> None:
        """Change the rate of a source from now on."""

    def waiting_rows(self) -> np.ndarray:
        """Return the rows that wait for each operator: in its queue, in its log, or for a row to pair with."""

    def in_service_rows(self) -> np.ndarray:
        """Return the rows that each operator is processing."""

    def counted_until_s(self) -> np.ndarray:
        """Return the time up to which the work of each operator is counted: a batch counts when it ends."""

    def is_idle(self) -> bool:
        """Return whether all sources have ended and no row is waiting or in service."""
