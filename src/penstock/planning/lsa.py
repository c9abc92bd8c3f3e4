"""Linear scaling allocation (LSA): n threads have n times the rate, CPU and memory of one thread.

Source: Shukla and Simmhan, JPDC 2018, algorithm LSA (their baseline, and the assumption of R-Storm). Let w1, c1 and m1
be the peak rate, CPU and memory of one thread. LSA allocates floor(rate / w1) threads of (c1, m1), and for a remainder
r one more thread of (c1 r / w1, m1 r / w1).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning.allocation import Allocation, Bundle, allocate, single_thread, whole_units


def lsa(flow: Flow, rows_per_s: float, curves: Mapping[str, Curve]) -> Allocation:
    """Allocate threads for an external rate of `rows_per_s`.

    >>> from penstock.models.curve import CurvePoint
    >>> from penstock.models.flow import FlowStream
    >>> pi = Curve(threads=(1,), points=(CurvePoint(rows_per_s=100, cpu=80, memory=10),))
    >>> allocation = lsa(Flow(operators=("pi",), streams=(FlowStream(source=None, target="pi"),)), 250, {"pi": pi})
    >>> allocation.threads, allocation.cpu, allocation.slots
    (3, 200.0, 2)
    """
    return allocate(flow, rows_per_s, curves, "lsa", _operator, exclusive=False)


def _operator(rate: float, curve: Curve) -> tuple[int, Bundle, Bundle | None]:
    threads, remainder = whole_units(rate, curve.single.rows_per_s)
    full = single_thread(curve, curve.single.rows_per_s)
    return threads, full, single_thread(curve, remainder) if remainder else None
