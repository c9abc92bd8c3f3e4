"""A rate over time, in steps: how many rows a source is to append between two moments."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSteps:
    """`rows_per_s[i]` from `from_s[i]` on; begins anew every `repeat_s` if that is given.

    >>> steps = RateSteps(from_s=(0.0, 10.0), rows_per_s=(5.0, 1.0), repeat_s=20.0)
    >>> steps.rows_between(5.0, 25.0), steps.at(21.0)
    (60.0, 5.0)
    """

    from_s: tuple[float, ...]
    rows_per_s: tuple[float, ...]
    repeat_s: float | None = None

    def at(self, moment_s: float) -> float:
        if self.repeat_s is not None:
            moment_s %= self.repeat_s
        return self.rows_per_s[max(0, bisect.bisect_right(self.from_s, moment_s) - 1)]

    def rows_between(self, start_s: float, end_s: float) -> float:
        return self._rows_until(end_s) - self._rows_until(start_s)

    def _rows_until(self, moment_s: float) -> float:
        whole = 0.0
        if self.repeat_s is not None:
            rounds, moment_s = divmod(moment_s, self.repeat_s)
            whole = rounds * self._first_round(self.repeat_s) if rounds else 0.0
        return whole + self._first_round(moment_s)

    def _first_round(self, moment_s: float) -> float:
        ends = (*self.from_s[1:], math.inf)
        return math.fsum(
            rate * (min(end, moment_s) - start)
            for start, end, rate in zip(self.from_s, ends, self.rows_per_s, strict=True)
            if moment_s > start
        )
