"""The search over numbers of threads, and the rule that ends it.

The paper stops when the slope of the peak rates over a trailing window of thread counts is flat or negative. The slope
is taken here between logarithms: it is the exponent e of rate ~ threads^e, which is 1 for a linear curve, and does not
depend on units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.study.curves.measured_curve import PeakRate

TRAILING = 3  # thread counts in the window
LEAST_GROWTH = 0.05  # exponent up to which the rates are flat


def growth(peaks: Sequence[PeakRate]) -> float:
    """Return the exponent e of rate ~ threads^e over these peak rates.

    >>> def peak(threads, rate):
    ...     return PeakRate(
    ...         threads=threads, rows_per_s=rate, unstable_rows_per_s=None, latency_s=None, cpu=0.0, memory=0.0
    ...     )
    >>> round(growth([peak(1, 10.0), peak(2, 20.0), peak(4, 40.0)]), 6)
    1.0
    """
    threads = [math.log(peak.threads) for peak in peaks]
    return float(np.polyfit(threads, [math.log(peak.rows_per_s) for peak in peaks], 1)[0])


def next_threads(peaks: Sequence[PeakRate], counts: Sequence[int]) -> tuple[int | None, str]:
    """Return the next number of threads, or None and the reason why there is none.

    `counts` are the numbers of threads to try, in ascending order.
    """
    if len(peaks) >= TRAILING:
        exponent = growth(peaks[-TRAILING:])
        if exponent <= LEAST_GROWTH:
            window = ", ".join(str(peak.threads) for peak in peaks[-TRAILING:])
            shape = "falls" if exponent < -LEAST_GROWTH else "is flat"
            return None, f"the peak rate {shape} over {window} threads (exponent {exponent:.2f})"
    if len(peaks) == len(counts):
        return None, f"{counts[-1]} threads are the largest number to try"
    return counts[len(peaks)], ""
