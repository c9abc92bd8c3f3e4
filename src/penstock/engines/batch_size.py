"""The rule for the size of micro-batches, shared by the Spark engine and the simulator.

A batch should take `target_s`. Part of that time is overhead: a batch spends it even if it has few rows, so fewer rows
do not shorten it. The rows of a batch therefore get at least as much time as the overhead takes. While rows are left
over, the target is stretched up to `MAX_STRETCH` times, because overhead is a smaller part of a long batch.

The functions take and return plain numbers and call nothing but `min` and `max`, so numba can compile them.
"""

from __future__ import annotations

FIRST_BATCH_ROWS = 500.0
MAX_GROWTH = 4.0  # largest growth of the limit from one batch to the next
MAX_STRETCH = 4.0  # largest stretch of the target while rows are left over
STRETCH_STEP = 1.5


def next_limit(
    limit_rows: float, batch_rows: float, batch_s: float, overhead_s: float, target_s: float, stretch: float
) -> float:
    """Return the row limit of the next batch, given the last batch and its limit.

    The limit falls to half at most, because a cold start is slow and says little about later batches. It rises only
    after a batch that used at least half of it, because a small batch does not show what a full one takes.

    >>> next_limit(500.0, batch_rows=500, batch_s=0.5, overhead_s=0.0, target_s=2.0, stretch=1.0)
    2000.0
    >>> next_limit(2000.0, batch_rows=2000, batch_s=3.0, overhead_s=0.0, target_s=2.0, stretch=1.0)
    1333.3333333333333
    """
    budget_s = max(target_s * stretch, 2.0 * overhead_s) - overhead_s
    shortest_s = budget_s / MAX_GROWTH
    rows_s = batch_s - overhead_s
    fitting_rows = batch_rows * budget_s / max(rows_s, shortest_s)
    if fitting_rows < limit_rows and rows_s > shortest_s:
        return max(1.0, limit_rows / 2.0, fitting_rows)
    if batch_rows >= limit_rows * 0.5:
        return min(fitting_rows, limit_rows * MAX_GROWTH)
    return limit_rows


def next_stretch(stretch: float, rows_left: bool) -> float:
    """Return the stretch of the target after a batch that left rows over, or left none.

    >>> next_stretch(1.0, rows_left=True), next_stretch(1.0, rows_left=False)
    (1.5, 1.0)
    """
    if rows_left:
        return min(MAX_STRETCH, stretch * STRETCH_STEP)
    return max(1.0, stretch / STRETCH_STEP)
