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


def _near(one: float | None, other: float | None, within: float) -> bool:
    if one is None or other is None:
        return True
    return abs(one - other) <= within * max(abs(one), abs(other))
