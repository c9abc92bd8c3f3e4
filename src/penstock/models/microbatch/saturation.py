"""Saturation of a running query: the rows that wait for each batch grow without bound.

Batches that follow each other immediately are no sign of saturation: their duration may be fixed cost. A saturated
query has no pause between its batches, and each batch finds more waiting rows than the ones before it. The waiting rows
are those that the batch reads plus those that it leaves behind. The test also works for a source that reads everything.
Kendall's rank test distinguishes the growth from noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from scipy.stats import kendalltau

_MIN_BATCHES = 3
_MIN_RANKED = 5  # batches for a rank test
_STEP = 1.1  # growth from batch to batch that is evidence after few batches
_MAX_P = 0.01  # one-sided
_GROWTH = 1.25  # last third / first third
_LASTING = 1.02  # smallest slope of the rows of a batch over those of the batch before: lambda C without a limit
_MAX_PAUSE = 0.1  # largest share of the time between batches


class WaitingRows(NamedTuple):
    """A batch, and the rows that waited when it began."""

    began_s: float
    batch_s: float
    rows: float  # read by the batch, or left behind
    left_rows: float = 0.0  # left behind, because the source limits the rows of a batch


def is_saturated(batches: Sequence[WaitingRows]) -> bool | None:
    """Return whether the waiting rows grow without bound; None if there are too few batches for a statement.

    >>> steady = [WaitingRows(began_s=float(i), batch_s=1.0, rows=300.0 + i % 2) for i in range(10)]
    >>> growing = [WaitingRows(began_s=float(i), batch_s=1.0, rows=300.0 * 1.2**i) for i in range(10)]
    >>> is_saturated(steady), is_saturated(growing), is_saturated(steady[:2])
    (False, True, None)
    """
    if len(batches) < _MIN_BATCHES:
        return None
    batches = list(batches)
    span_s = batches[-1].began_s - batches[0].began_s
    busy_s = sum(batch.batch_s for batch in batches[:-1])
    # A limited batch leaves rows behind even if the query waits for its next trigger.
    is_limited = all(batch.left_rows > 0 for batch in batches[-_MIN_RANKED:])
    if span_s <= 0 or (busy_s < (1.0 - _MAX_PAUSE) * span_s and not is_limited):
        return False
    rows = [batch.rows for batch in batches]
    third = max(1, len(rows) // 3)
    first, last = sum(rows[:third]) / third, sum(rows[-third:]) / third
    if last < _GROWTH * max(first, 1.0):
        return False
    if not is_limited and successor_slope(rows) < _LASTING:  # the rows settle at a larger number
        return False
    if len(rows) < 2 * _MIN_RANKED and all(after >= _STEP * before for before, after in pairwise(rows)):
        return True
    if len(rows) < _MIN_RANKED:
        return None
    result = kendalltau(range(len(rows)), rows, alternative="greater")
    return bool(result.pvalue < _MAX_P)


def successor_slope(rows: Sequence[float]) -> float:
    """Return the slope of n(i + 1) over n(i). It is lambda C: below 1 the rows settle, however long that takes."""
    before, after = rows[:-1], rows[1:]
    mean_before, mean_after = sum(before) / len(before), sum(after) / len(after)
    squares = sum((value - mean_before) ** 2 for value in before)
    pairs = zip(before, after, strict=True)
    return sum((x - mean_before) * (y - mean_after) for x, y in pairs) / squares if squares > 0 else 0.0
