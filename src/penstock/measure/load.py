"""The load of a run in two numbers, and whether it has changed."""

from __future__ import annotations

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What arrives, and the work in it: the same rows may become more expensive."""

    rows_per_s: float | None  # None: not known
    work: float | None  # replicas that it keeps busy: sum of rows/s x seconds a row, did all operators keep up

    def near(self, other: Load, *, within: float = 0.2) -> bool:
        """What is not known has not changed.

        >>> Load(rows_per_s=100.0, work=2.0).near(Load(rows_per_s=110.0, work=2.1))
        True
        >>> Load(rows_per_s=100.0, work=2.0).near(Load(rows_per_s=100.0, work=3.0))
        False
        """
        return _near(self.rows_per_s, other.rows_per_s, within) and _near(self.work, other.work, within)

    def exceeded_by(self, other: Load, *, by: float = 0.05) -> bool:
        """Whether there is more to do by now: near saturation a little more takes far longer.

        >>> before = Load(rows_per_s=100.0, work=2.0)
        >>> [before.exceeded_by(Load(rows_per_s=rate, work=rate / 50)) for rate in (80.0, 104.0, 107.0)]
        [False, False, True]
        """
        return _exceeds(other.rows_per_s, self.rows_per_s, by) or _exceeds(other.work, self.work, by)


def _exceeds(one: float | None, other: float | None, by: float) -> bool:
    return one is not None and other is not None and one > (1.0 + by) * other


def _near(one: float | None, other: float | None, within: float) -> bool:
    if one is None or other is None:
        return True
    return abs(one - other) <= within * max(abs(one), abs(other))
