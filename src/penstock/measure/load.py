"""The load of a run in two numbers, and whether it has changed."""

from __future__ import annotations

import math

import msgspec

from penstock.measure.window import Window


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What arrives, and the work in it: the same rows may become more expensive."""

    rows_per_s: float
    work: float  # busy replicas: sum over operators of rows/s in x seconds a row

    def near(self, other: Load, *, within: float = 0.2) -> bool:
        """
        >>> Load(rows_per_s=100.0, work=2.0).near(Load(rows_per_s=110.0, work=2.1))
        True
        >>> Load(rows_per_s=100.0, work=2.0).near(Load(rows_per_s=100.0, work=3.0))
        False
        """
        return _near(self.rows_per_s, other.rows_per_s, within) and _near(self.work, other.work, within)


def load_of(window: Window) -> Load:
    """What is not known counts as nothing: it is compared with itself only."""
    work = math.fsum(
        one.input_rows_per_s * one.seconds_per_row
        for one in window.operators
        if one.input_rows_per_s is not None and one.seconds_per_row is not None and one.replicas is not None
    )
    return Load(rows_per_s=window.external_rows_per_s or 0.0, work=work)


def _near(one: float, other: float, within: float) -> bool:
    return abs(one - other) <= within * max(abs(one), abs(other))
