"""Model-based allocation (MBA): full slots at the best thread count of an operator, and a rest from its curve.

Source: Shukla and Simmhan, JPDC 2018, algorithm MBA. Let t^ be the thread count with the highest peak rate w^ on one
slot. MBA allocates floor(rate / w^) bundles of t^ threads. Each bundle is charged a whole slot (100% CPU and memory),
because threads of other operators on that slot would slow it down. A remainder r gets the fewest threads whose peak
rate is at least r, with their CPU and memory; a single thread is charged in proportion to r.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning.allocation import SLOT, Allocation, Bundle, allocate, single_thread, whole_units


def mba(flow: Flow, rows_per_s: float, curves: Mapping[str, Curve]) -> Allocation:
    """Allocate threads for an external rate of `rows_per_s`.

    >>> from penstock.models.curve import CurvePoint
    >>> from penstock.models.flow import FlowStream
    >>> points = (CurvePoint(rows_per_s=3, cpu=1, memory=1), CurvePoint(rows_per_s=40, cpu=54, memory=16))
    >>> flow = Flow(operators=("table",), streams=(FlowStream(source=None, target="table"),))
    >>> allocation = mba(flow, 82, {"table": Curve(threads=(1, 60), points=points)})
    >>> allocation.threads, allocation.slots  # 60 + 60 threads, and one for the remaining 2 rows/s
    (121, 3)
    """
    return allocate(flow, rows_per_s, curves, "mba", _operator, exclusive=True)


def _operator(rate: float, curve: Curve) -> tuple[int, Bundle, Bundle | None]:
    best = curve.best.rows_per_s
    full = Bundle(threads=curve.best_threads, rows_per_s=best, cpu=SLOT, memory=SLOT)
    bundles, remainder = whole_units(rate, best)
    return bundles, full, _rest(remainder, curve) if remainder else None


def _rest(rate: float, curve: Curve) -> Bundle:
    threads = curve.threads_for(rate)
    if threads == 1:
        return single_thread(curve, rate)
    point = curve.at(threads)
    return Bundle(threads=threads, rows_per_s=rate, cpu=point.cpu, memory=point.memory)
