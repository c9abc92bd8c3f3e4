"""A rate over time, in steps: how many rows a source is to append between two moments."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from itertools import accumulate


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
    _rows_before: tuple[float, ...] = field(init=False, repr=False, compare=False)  # the start of each step

    def __post_init__(self) -> None:
        lengths = (end - start for start, end in zip(self.from_s, self.from_s[1:], strict=False))
        of_steps = (length * rate for length, rate in zip(lengths, self.rows_per_s, strict=False))
        object.__setattr__(self, "_rows_before", tuple(accumulate(of_steps, initial=0.0)))

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
        step = max(0, bisect.bisect_right(self.from_s, moment_s) - 1)
        return self._rows_before[step] + self.rows_per_s[step] * max(0.0, moment_s - self.from_s[step])
