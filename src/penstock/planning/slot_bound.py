"""Lower bounds of the number of slots, by linear relaxation. They show how far an allocation is from the optimum.

Consider a placement on S slots. Let y[i, n] be the used part of the peak rate w_i(n), summed over the slots on which
operator i has n threads. A group of threads at half its peak rate counts 0.5, with half its CPU and memory. Then

    sum_n w_i(n) y[i, n] >= rate_i         the rate is served                                     for each i
    sum_i,n cpu_i(n) y[i, n] <= 100 S      the CPU of the slots is not exceeded; the same for memory
    sum_n y[i, n] <= S                     threads of i on one slot are one group, so at most S groups   for each i

The smallest S of this linear program, rounded up, is therefore a lower bound of the slots of the placement. Only
measured n are needed: between two of them the curve is linear, so a group there is a mix of its neighbours, and beyond
the last one the curve is constant.

The first two kinds of constraint hold for every allocation. LSA charges (c1, m1) per w1, that is y[i, 1] = rate_i / w1.
MBA charges at least the use of its bundles. The third kind states that one slot does not exceed the best rate of the
curve. LSA ignores this, so it may allocate fewer slots than the bound; its curves then do not sustain the rate. MBA
never does, because it has at least b_i + 1 slots for b_i bundles and a rest. Hence there are two bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.models.curve import Curve
from penstock.models.flow import Flow, gains
from penstock.planning.allocation import SLOT, curve_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotBounds:
    """Lower bounds of the number of slots."""

    any_method: int  # neither LSA nor MBA allocates fewer slots
    sustaining: int  # a placement that sustains the rate without overloading a slot has at least this many


def slot_bounds(flow: Flow, rows_per_s: float, curves: Mapping[str, Curve]) -> SlotBounds:
    """Return the lower bounds for an external rate of `rows_per_s`.

    >>> from penstock.models.curve import CurvePoint
    >>> from penstock.models.flow import FlowStream
    >>> points = (CurvePoint(rows_per_s=3, cpu=1, memory=1), CurvePoint(rows_per_s=40, cpu=54, memory=16))
    >>> flow = Flow(operators=("table",), streams=(FlowStream(source=None, target="table"),))
    >>> slot_bounds(flow, 100, {"table": Curve(threads=(1, 60), points=points)})  # 100 / 40 = 2.5 slots
    SlotBounds(any_method=1, sustaining=3)
    """
    demands = [(rows_per_s * gain, curve_of(name, curves)) for name, gain in gains(flow).items()]
    demands = [(rate, curve) for rate, curve in demands if rate > 0]
    return SlotBounds(any_method=_least_slots(demands, grouped=False), sustaining=_least_slots(demands, grouped=True))


def _least_slots(demands: list[tuple[float, Curve]], *, grouped: bool) -> int:
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    if not demands:
        return 1
    # Columns: y[i, n] in units of rate_i / w_i(n), so that every coefficient is near 1; then S.
    owner = [number for number, (_, curve) in enumerate(demands) for _ in curve.points]
    groups = np.array([rate / point.rows_per_s for rate, curve in demands for point in curve.points])
    cpu = np.array([point.cpu / SLOT for _, curve in demands for point in curve.points])
    memory = np.array([point.memory / SLOT for _, curve in demands for point in curve.points])
    scale = max(1.0, max(rate / curve.best.rows_per_s for rate, curve in demands))  # the unit of S
    y, s = np.arange(len(owner)), len(owner)
    count = len(demands)
    entries = [  # (row numbers, columns, values) of the constraints, all of the form "<= bound"
        (np.array(owner), y, -np.ones(s)),
        (np.full(s, count), y, cpu * groups / scale),
        (np.full(s, count + 1), y, memory * groups / scale),
        (np.array([count, count + 1]), np.array([s, s]), -np.ones(2)),
    ]
    if grouped:
        entries.append((np.array(owner) + count + 2, y, groups / scale))
        entries.append((np.arange(count) + count + 2, np.full(count, s), -np.ones(count)))
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    height = count + 2 + (count if grouped else 0)
    matrix = coo_array((values, (rows, columns)), shape=(height, s + 1)).tocsr()
    bound = np.concatenate([-np.ones(count), np.zeros(height - count)])
    cost = np.zeros(s + 1)
    cost[s] = 1.0
    solved = linprog(cost, A_ub=matrix, b_ub=bound, bounds=(0, None), method="highs")
    min_slots = float(solved.fun) * scale
    # The solver satisfies constraints to 1e-7. Subtract that tolerance instead of claiming one slot too many.
    return max(1, math.ceil(min_slots - 1e-6 * max(scale, min_slots)))
