"""Linear scaling allocation: n threads do n times what one thread does, and use n times as much.

Source: Shukla and Simmhan, JPDC 2018, algorithm LSA (their baseline, and what R-Storm assumes). With w1, c1, m1 of one
thread: floor(rate / w1) threads of (c1, m1), and for a remainder r one more of (c1 r / w1, m1 r / w1).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning.allocation import Allocation, Bundle, allocate, scaled, whole_units


def lsa(flow: Flow, rows_per_s: float, curves: Mapping[str, Curve]) -> Allocation:
    """
    >>> from penstock.models.curve import CurvePoint
    >>> from penstock.models.flow import FlowStream
    >>> pi = Curve(threads=(1,), points=(CurvePoint(rows_per_s=100, cpu=80, memory=10),))
    >>> plan = lsa(Flow(operators=("pi",), streams=(FlowStream(source=None, target="pi"),)), 250, {"pi": pi})
    >>> plan.threads, plan.cpu, plan.slots
    (3, 200.0, 2)
    """
    return allocate(flow, rows_per_s, curves, "lsa", _operator, exclusive=False)


def _operator(rate: float, curve: Curve) -> tuple[int, Bundle, Bundle | None]:
    threads, left = whole_units(rate, curve.single.rows_per_s)
    return threads, scaled(curve, curve.single.rows_per_s), scaled(curve, left) if left else None
