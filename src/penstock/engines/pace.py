"""The pace of a source: when each of its rows is appended. The append time of a row is always the same.

The clock of a pace waits while a run starts or is stopped. No row is appended meanwhile.
"""

from __future__ import annotations

import bisect
import math

import msgspec


class Leg(msgspec.Struct, frozen=True, array_like=True):
    """A span of constant rate. Rows from number `row` on are appended at `rows_per_s`, beginning at `at_s`."""

    at_s: float
    row: int
    rows_per_s: float | None  # None appends all rows at once


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a source over time.

    >>> pace = Pace.starting(at_s=100.0, rows_per_s=10.0).changed(at_s=102.0, rows_per_s=50.0)
    >>> [pace.available(at) for at in (100.0, 101.0, 102.0, 103.0)]
    [0, 10, 20, 70]
    >>> pace.appended_at(9), pace.appended_at(20)
    (101.0, 102.02)
    >>> resumed = pace.waiting(row=50).started(at_s=900.0)
    >>> resumed.available(902.0), resumed.appended_at(20)
    (150, 102.02)
    """

    legs: tuple[Leg, ...]
    rows: int | None = None  # total; None if the source never ends
    waiting_at: int | None = None  # the first row that the waiting clock has not appended; None while the clock runs

    @staticmethod
    def starting(*, at_s: float, rows_per_s: float | None, row: int = 0, rows: int | None = None) -> Pace:
        return Pace(legs=(Leg(at_s, row, rows_per_s),), rows=rows)

    def available(self, now_s: float) -> int:
        """Return how many rows have been appended up to a time."""
        if self.waiting_at is not None:
            return self.waiting_at
        leg = self.legs[max(0, bisect.bisect_right([leg.at_s for leg in self.legs], now_s) - 1)]
        if leg.rows_per_s is None:
            return self.rows if self.rows is not None else leg.row
        # The small addend compensates for rounding: a row is appended exactly when its interval ends.
        appended = leg.row + math.floor(max(0.0, now_s - leg.at_s) * leg.rows_per_s + 1e-6)
        return appended if self.rows is None else min(appended, self.rows)

    def appended_at(self, row: int) -> float:
        """Return when row number `row` (from 0) is appended; infinity if the rate is 0 or the clock waits."""
        if self.waiting_at is not None and row >= self.waiting_at:
            return math.inf
        leg = self.legs[max(0, bisect.bisect_right([leg.row for leg in self.legs], row) - 1)]
        if leg.rows_per_s is None:
            return leg.at_s
        return leg.at_s + (row + 1 - leg.row) / leg.rows_per_s if leg.rows_per_s > 0 else math.inf

    def changed(self, *, at_s: float, rows_per_s: float | None) -> Pace:
        """Return the pace with another rate from `at_s` on. Rows appended before stay appended."""
        if self.waiting_at is not None:
            waiting = Leg(self.legs[-1].at_s, self.waiting_at, rows_per_s)
            return msgspec.structs.replace(self, legs=(*self.legs[:-1], waiting))
        row = self.available(at_s)
        earlier = tuple(leg for leg in self.legs if leg.row < row)
        return Pace(legs=(*earlier, Leg(at_s, row, rows_per_s)), rows=self.rows)

    def waiting(self, *, row: int) -> Pace:
        """Return the pace with a clock that waits before `row`. The last rate is kept for its start."""
        earlier = tuple(leg for leg in self.legs if leg.row < row)
        last = self.legs[-1]
        return Pace(legs=(*earlier, Leg(last.at_s, row, last.rows_per_s)), rows=self.rows, waiting_at=row)

    def started(self, *, at_s: float) -> Pace:
        """Return the pace with a running clock: the rows after the wait are appended from `at_s` on."""
        if self.waiting_at is None:
            return self
        started = Leg(at_s, self.waiting_at, self.legs[-1].rows_per_s)
        return Pace(legs=(*self.legs[:-1], started), rows=self.rows)
