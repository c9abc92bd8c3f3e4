"""The K-of-N rule that decides whether a measured rate has converged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from penstock.dataflow.errors import PenstockError


class ConvergenceError(PenstockError):
    """A parameter of the K-of-N rule is invalid."""


def samples_until_converged(samples: Sequence[float], *, n: int = 5, k: int = 4, tolerance: float = 0.05) -> int | None:
    """Return the number of samples until K of the last N differ by at most `tolerance` from their predecessors.

    None: the samples have not converged. Source: Imai, Patterson and Varela (2017), section 3.2, with N = 5, K = 4 and
    5%. A missing sample (NaN) is not close to any other. N comparisons need N + 1 samples, but K may agree earlier.

    >>> samples_until_converged([5, 12, 30, 41, 42, 41.5, 42.3, 42.1])
    8
    >>> samples_until_converged([5, 12, 30, 41]) is None
    True
    """
    if not 1 <= k <= n:
        raise ConvergenceError(f"K is {k} and N is {n}. K must be between 1 and N.")
    if not tolerance >= 0:
        raise ConvergenceError(f"The tolerance is {tolerance}. It must be 0 or more.")
    close = [
        math.isfinite(before) and math.isfinite(now) and abs(now - before) <= tolerance * abs(before)
        for before, now in pairwise(samples)
    ]
    for end in range(1, len(close) + 1):
        if sum(close[max(0, end - n) : end]) >= k:
            return end + 1
    return None


def has_converged(samples: Sequence[float], *, n: int = 5, k: int = 4, tolerance: float = 0.05) -> bool:
    """Return whether the latest samples satisfy the rule. A rate that converged earlier may have changed again.

    >>> has_converged([42, 42, 42, 42, 42]), has_converged([42, 42, 42, 42, 42, 60, 80])
    (True, False)
    """
    return samples_until_converged(samples[-(n + 1) :], n=n, k=k, tolerance=tolerance) is not None
