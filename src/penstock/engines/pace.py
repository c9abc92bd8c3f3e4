"""Pace: when the rows of a paced source are appended. Row n has one append time, whoever asks and whenever."""

from __future__ import annotations

import bisect
import math

import msgspec


class Leg(msgspec.Struct, frozen=True, array_like=True):
    """From `at_s` on, row number `row` and those behind it are appended at `rows_per_s`."""

    at_s: float
    row: int
    rows_per_s: float | None  # None: all rows at once


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """
    >>> pace = Pace.starting(at_s=100.0, rows_per_s=10.0).changed(at_s=102.0, rows_per_s=50.0)
    >>> [pace.available(at) for at in (100.0, 101.0, 102.0, 103.0)]
    [0, 10, 20, 70]
    >>> pace.appended_at(9), pace.appended_at(20)
    (101.0, 102.02)
    """

    legs: tuple[Leg, ...]
    rows: int | None = None  # how many there are in all; None: without end

    @staticmethod
    def starting(*, at_s: float, rows_per_s: float | None, row: int = 0, rows: int | None = None) -> Pace:
        return Pace(legs=(Leg(at_s, row, rows_per_s),), rows=rows)

    def available(self, now_s: float) -> int:
        """How many rows have been appended by now."""
        leg = self.legs[max(0, bisect.bisect_right([leg.at_s for leg in self.legs], now_s) - 1)]
        if leg.rows_per_s is None:
            return self.rows if self.rows is not None else leg.row
        # A hair is added because a row is appended at the very instant that its share of time is up.
        appended = leg.row + math.floor(max(0.0, now_s - leg.at_s) * leg.rows_per_s + 1e-6)
        return appended if self.rows is None else min(appended, self.rows)

    def appended_at(self, row: int) -> float:
        """When row number `row` (from 0) was or will be appended; infinity if never at this pace."""
        leg = self.legs[max(0, bisect.bisect_right([leg.row for leg in self.legs], row) - 1)]
        if leg.rows_per_s is None:
            return leg.at_s
        return leg.at_s + (row + 1 - leg.row) / leg.rows_per_s if leg.rows_per_s > 0 else math.inf

    def changed(self, *, at_s: float, rows_per_s: float | None) -> Pace:
        """Another rate from now on; what was appended stays appended."""
        row = self.available(at_s)
        earlier = tuple(leg for leg in self.legs if leg.row < row)
        return Pace(legs=(*earlier, Leg(at_s, row, rows_per_s)), rows=self.rows)

    def resumed(self, *, at_s: float, row: int) -> Pace:
        """After a break: rows from `row` on are appended from now on, at the last rate; no rows piled up meanwhile."""
        earlier = tuple(leg for leg in self.legs if leg.row < row)
        return Pace(legs=(*earlier, Leg(at_s, row, self.legs[-1].rows_per_s)), rows=self.rows)
