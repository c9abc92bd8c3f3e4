"""What a simulation counts since it began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.histogram import BINS
from penstock.engines.simulated.records import COUNT, Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    operators: Records  # records of COUNT, in the order of `flow.operators`
    stays: np.ndarray  # histogram of latencies at sinks
    stay_sum: np.ndarray  # of latencies at sinks: [0] rows, [1] seconds, [2] seconds squared

    def copy(self) -> Counts:
        return Counts(operators=self.operators.copy(), stays=self.stays.copy(), stay_sum=self.stay_sum.copy())


def no_counts(operators: int) -> Counts:
    return Counts(operators=np.zeros(operators, COUNT), stays=np.zeros(BINS), stay_sum=np.zeros(3))


@compiled
def note_arrivals(counts: np.ndarray, operator: int, now: float, rows: int) -> None:
    """Rows that come at one moment: no time passes between them."""
    gap = now - counts[operator].last_s
    counts[operator].arrived += rows
    counts[operator].gap_s2 += gap * gap
    counts[operator].last_s = now


@compiled
def note_service(counts: np.ndarray, operator: int, seconds: float, rows: int, mean_s: float) -> None:
    """Of rows that were served together; what they were expected to take is known here."""
    counts[operator].busy_s += seconds
    counts[operator].served += 1
    counts[operator].spread_s2 += (seconds - rows * mean_s) ** 2 / rows
