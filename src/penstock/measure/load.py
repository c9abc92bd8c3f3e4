"""The load of a run as two numbers, and the comparison of two loads."""

from __future__ import annotations

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The arrival rate and the work that it causes. The work may change at a constant rate."""

    rows_per_s: float | None  # None: unknown
    work: float | None  # busy replicas: sum over operators of rows/s x seconds per row, if all operators keep up

    def near(self, other: Load, *, within: float = 0.2) -> bool:
        """Return whether both numbers differ by at most the share `within`. Unknown numbers count as unchanged.

        >>> Load(rows_per_s=100.0, work=2.0).near(Load(rows_per_s=110.0, work=2.1))
        True
        >>> Load(rows_per_s=100.0, work=2.0).near(Load(rows_per_s=100.0, work=3.0))
        False
        """
        return _near(self.rows_per_s, other.rows_per_s, within) and _near(self.work, other.work, within)

    def exceeded_by(self, other: Load, *, by: float = 0.05) -> bool:
        """Return whether the other load is higher. A small threshold matters: near saturation latency grows quickly.

        >>> before = Load(rows_per_s=100.0, work=2.0)
        >>> [before.exceeded_by(Load(rows_per_s=rate, work=rate / 50)) for rate in (80.0, 104.0, 107.0)]
        [False, False, True]
        """
        return _exceeds(other.rows_per_s, self.rows_per_s, by) or _exceeds(other.work, self.work, by)


def _exceeds(value: float | None, reference: float | None, by: float) -> bool:
    return value is not None and reference is not None and value > (1.0 + by) * reference


def _near(a: float | None, b: float | None, within: float) -> bool:
    if a is None or b is None:
        return True
    return abs(a - b) <= within * max(abs(a), abs(b))
