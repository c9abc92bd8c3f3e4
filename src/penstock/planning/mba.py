"""Model-based allocation: whole slots at the operator's best thread count, and a rest from its curve.

Source: Shukla and Simmhan, JPDC 2018, algorithm MBA. With t^ the threads of the highest peak rate w^: floor(rate / w^)
bundles of t^ threads, each a whole slot (100% CPU and memory: what it leaves free there it could not use either, and
others would slow it down); for a remainder r the fewest threads whose peak is at least r, with their CPU and memory
(of one thread: in proportion to r).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning.allocation import SLOT, Allocation, Bundle, allocate, scaled, whole_units


def mba(flow: Flow, rows_per_s: float, curves: Mapping[str, Curve]) -> Allocation:
    """
    >>> from penstock.models.curve import CurvePoint
    >>> from penstock.models.flow import FlowStream
    >>> points = (CurvePoint(rows_per_s=3, cpu=1, memory=1), CurvePoint(rows_per_s=40, cpu=54, memory=16))
    >>> flow = Flow(operators=("table",), streams=(FlowStream(source=None, target="table"),))
    >>> plan = mba(flow, 82, {"table": Curve(threads=(1, 60), points=points)})
    >>> plan.threads, plan.slots  # 60 + 60, and one thread for the 2 rows/s left
    (121, 3)
    """
    return allocate(flow, rows_per_s, curves, "mba", _operator, exclusive=True)


def _operator(rate: float, curve: Curve) -> tuple[int, Bundle, Bundle | None]:
    best = curve.best.rows_per_s
    full = Bundle(threads=curve.best_threads, rows_per_s=best, cpu=SLOT, memory=SLOT)
    bundles, left = whole_units(rate, best)
    return bundles, full, _rest(left, curve) if left else None


def _rest(rate: float, curve: Curve) -> Bundle:
    threads = curve.threads_for(rate)
    if threads == 1:
        return scaled(curve, rate)
    point = curve.at(threads)
    return Bundle(threads=threads, rows_per_s=rate, cpu=point.cpu, memory=point.memory)
