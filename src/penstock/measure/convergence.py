"""When has a measured rate has_converged? The K-of-N rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from penstock.dataflow.errors import PenstockError


class ConvergenceError(PenstockError):
    """The rule is asked for what it cannot be."""


def samples_until_converged(samples: Sequence[float], *, n: int = 5, k: int = 4, tolerance: float = 0.05) -> int | None:
    """How many samples it took until K of the latest N were within `tolerance` of the one before them; None: not yet.

    Source: Imai, Patterson and Varela (2017), section 3.2, with their N = 5, K = 4 and 5%. A sample that is missing
    (NaN) is near to nothing. N comparisons need N + 1 samples, but K of them may agree earlier.

    >>> samples_until_converged([5, 12, 30, 41, 42, 41.5, 42.3, 42.1])
    8
    >>> samples_until_converged([5, 12, 30, 41]) is None
    True
    """
    if not 1 <= k <= n:
        raise ConvergenceError(f"K = {k} of N = {n} samples; K must be between 1 and N")
    if not tolerance >= 0:
        raise ConvergenceError(f"the tolerance is {tolerance}; it must be 0 or more")
    near = [
        math.isfinite(before) and math.isfinite(now) and abs(now - before) <= tolerance * abs(before)
        for before, now in pairwise(samples)
    ]
    for end in range(1, len(near) + 1):
        if sum(near[max(0, end - n) : end]) >= k:
            return end + 1
    return None


def has_converged(samples: Sequence[float], *, n: int = 5, k: int = 4, tolerance: float = 0.05) -> bool:
    """Do the latest samples satisfy the rule now? A rate that has_converged once may have left since.

    >>> has_converged([42, 42, 42, 42, 42]), has_converged([42, 42, 42, 42, 42, 60, 80])
    (True, False)
    """
    return samples_until_converged(samples[-(n + 1) :], n=n, k=k, tolerance=tolerance) is not None
