"""The parameters that DRS learns: a correction of predicted latencies, and the cost of a task in a batch.

Correction. A model omits what it does not know (network, scheduling, cold code), in similar proportion for similar
plans. Predictions are therefore multiplied by a running geometric mean f of measured / predicted latency:

    ln f(n) = (1 - l) ln f(n-1) + l ln (measured / predicted),     f within [1/100, 4]

f is below 1 if rows multiply, because the model adds up the latencies of all of them. It is learned only while the load
is steady and no backlog exists: the model describes the steady state.

Task cost. A batch takes r = a + b x seconds besides the work of its rows, where x is the number of tasks in its stages.
One plan cannot separate a from b, but two plans can. Over all queries, each relative to its own means:

    b = (sum (x - mean x) (r - mean r) + w b0) / (sum (x - mean x)^2 + w)

b0 is the initial estimate and w its weight; a plan with two tasks more or less outweighs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.control.policy import Memory, Situation
from penstock.measure.window import Window

Query = tuple[str, ...]  # its regions

_MIN_CORRECTION, _MAX_CORRECTION = 0.01, 4.0
_STEADY = 0.2  # maximum relative difference between the latest and the smoothed window
_BURST_S = 1.0  # rows of this time may arrive at once and wait for each other
_KEY = "drs.rest_of_batch"
_PRIOR_WEIGHT = 1.0  # w, in tasks^2


def with_correction(memory: Memory, key: str, *, measured_s: float, predicted_s: float, rate: float) -> Memory:
    """Return the memory with an updated correction f.

    >>> with_correction({}, "f", measured_s=3.0, predicted_s=2.0, rate=0.3)
    {'f': 1.5}
    >>> with_correction({"f": 1.0}, "f", measured_s=4.0, predicted_s=1.0, rate=0.5)
    {'f': 2.0}
    """
    ratio = min(_MAX_CORRECTION, max(_MIN_CORRECTION, measured_s / predicted_s))
    before = memory.get(key)
    return {**memory, key: ratio if before is None else before ** (1.0 - rate) * ratio**rate}


def is_steady(situation: Situation) -> bool:
    """Return whether the latest window is close to the smoothed one, in input rate and in latency."""
    window, latest = situation.window, situation.latest
    if window is None or latest is None:
        return False
    same_rate = are_close(window.external_rows_per_s, latest.external_rows_per_s)
    return same_rate and are_close(_mean_latency_s(window), _mean_latency_s(latest))


def has_backlog(situation: Situation, predicted_s: float) -> bool:
    """Return whether more rows wait than the steady state explains (Little's law), even with the largest correction.

    A backlog that drains slowly looks steady in rate and latency.
    """
    window = situation.window
    if window is None:
        return False
    in_progress_s = max(_BURST_S, _MAX_CORRECTION * predicted_s)
    return situation.backlog_rows(window) > in_progress_s * (window.external_rows_per_s or 0.0)


def are_close(first: float | None, second: float | None) -> bool:
    """Return whether two values differ by no more than windows of a steady load do."""
    return first is not None and second is not None and abs(first - second) <= _STEADY * max(first, second)


def _mean_latency_s(window: Window) -> float | None:
    return None if window.latency is None else window.latency.mean_s


class BatchOverhead(NamedTuple):
    """The time of a query's mean batch besides the work of its rows: r, and the number of tasks x."""

    tasks: int
    seconds: float


def with_overheads(memory: Memory, overheads: Mapping[Query, BatchOverhead], *, rate: float) -> Memory:
    """Return the memory with a running mean of the overhead per query and number of tasks."""
    updated = dict(memory)
    for query, overhead in overheads.items():
        key = _key(query, overhead.tasks)
        before = updated.get(key, overhead.seconds)
        updated[key] = (1.0 - rate) * before + rate * overhead.seconds
    return updated


def remembered_overheads(memory: Memory, overheads: Mapping[Query, BatchOverhead]) -> dict[Query, BatchOverhead]:
    """Replace measured overheads by remembered ones; r is inaccurate if a backlog makes a batch nearly all work."""
    return {
        query: BatchOverhead(overhead.tasks, memory.get(_key(query, overhead.tasks), overhead.seconds))
        for query, overhead in overheads.items()
    }


def _key(query: Query, tasks: int) -> str:
    return f"{_KEY} {'+'.join(query)} {tasks}"


def task_s(memory: Memory, expected_s: float) -> float:
    """Return b, the seconds that a task adds to a batch.

    >>> task_s({}, 0.02)
    0.02
    >>> memory = with_overheads({}, {("count",): BatchOverhead(2, 0.18)}, rate=0.3)
    >>> memory = with_overheads(memory, {("count",): BatchOverhead(10, 0.50)}, rate=0.3)
    >>> round(task_s(memory, 0.02), 3)  # (0.50 - 0.18) / (10 - 2) = 0.04
    0.039
    """
    overheads: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for key, seconds in memory.items():
        if key.startswith(_KEY):
            query, _, tasks = key.rpartition(" ")
            overheads[query].append((tasks, seconds))
    covariance, variance = _PRIOR_WEIGHT * expected_s, _PRIOR_WEIGHT
    for of_query in overheads.values():
        if len(of_query) == 1:  # one number of tasks shows no slope
            continue
        points = [(int(tasks), seconds) for tasks, seconds in of_query]
        mean_x = sum(x for x, _ in points) / len(points)
        mean_r = sum(r for _, r in points) / len(points)
        covariance += sum((x - mean_x) * (r - mean_r) for x, r in points)
        variance += sum((x - mean_x) ** 2 for x, _ in points)
    return max(0.0, covariance / variance)
