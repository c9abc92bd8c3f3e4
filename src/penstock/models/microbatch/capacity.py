"""The capacity of a running micro-batch query, estimated from its own batches.

A batch of n rows takes D(n) = A + C n, where A does not depend on the rows. The query sustains 1 / C rows/s. A batch
that a source limits to N rows sustains N / D(N) at most, and a trigger interval T sustains N / T at most.

- Batches of different sizes determine C by regression. Its interval is Student's, with a variance that allows larger
  errors in larger batches (MacKinnon and White, 1985, HC3).
- Batches of equal size do not. The time of a batch without the phases that do not depend on rows bounds C from above,
  and C is 0 or more. The capacity then has a lower bound only.

The time of a batch with another number of slots follows from its stages. A stage of k tasks with the total task time W,
the longest task L and p slots takes at least max(L, W / min(k, p)), and with equal tasks ceil(k / p) W / k. R. Graham's
bound W / p + L (1 - 1 / p) is the upper end (SIAM J. Appl. Math. 17(2), 1969). The driver's part does not change.

Queries of one program share the slots. The time for which a stage waits for the tasks of other queries is left out:
it is bounded while all tasks fit into the slots, and does not grow with the rows of this query. Whether all tasks fit
is a matter of all queries together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit  # quantiles of Student's t; scipy.stats takes twice as long to import

from penstock.measure.stage_run import StageRun
from penstock.measure.window import Estimate

_LEVEL = 0.95
_MIN_FIT = 3  # batches for a regression
_EQUAL_TASKS = 1.25  # longest task / mean task up to which the tasks count as equal
_EVEN = 0.85  # equal tasks leave no slot idle for longer than this share of the stage suggests
_OUTLIER = 6.0  # residuals beyond this multiple of the median absolute residual are not fitted
_KNOWN = 3.0  # largest ratio of the ends of an interval whose estimate is stated
_DISPATCH_S = 0.1  # time that Spark needs at most to start the tasks of a stage if slots are free
_EXTRAPOLATED = 10.0  # a lower end beyond so many times the observed rate is not stated
_LARGEST = 0.2  # share of the batches that count as the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """One batch of a query. `stages` is None if the task times are unknown."""

    rows: int
    batch_s: float
    fixed_s: float  # phases that do not depend on the rows, such as the commit of offsets
    slots: int  # slots of all executors during the batch
    stages: tuple[StageRun, ...] | None
    limited: bool = False  # the source had more rows than the batch was allowed to read
    shared: bool = False  # other queries ran at the same time

    @property
    def stages_s(self) -> float:
        """Return the time of the batch during which a stage ran; stages of a join may run at the same time."""
        return min(self.batch_s, sum(stage.wall_s for stage in self.stages or ()))

    @property
    def waiting_s(self) -> float:
        """Return the time for which stages waited for the tasks of other queries."""
        return self.overlap * sum(_waiting_s(stage, self.slots) for stage in self.stages or ()) if self.shared else 0.0

    def stage_s(self, index: int) -> float:
        """Return the time of one stage without the wait for the tasks of other queries."""
        assert self.stages is not None
        stage = self.stages[index]
        return stage.wall_s - (_waiting_s(stage, self.slots) if self.shared else 0.0)

    @property
    def overlap(self) -> float:
        """Return the time during which a stage ran, divided by the sum over all stages."""
        total_s = sum(stage.wall_s for stage in self.stages or ())
        return self.stages_s / total_s if total_s > 0 else 0.0


class TimeRange(NamedTuple):
    low: float
    value: float
    high: float


@lru_cache(maxsize=8192)  # each window estimates the same batches again
def batch_time(batch: BatchRun, slots: int) -> TimeRange:
    """Return the time of the same batch with another number of slots.

    >>> stage = StageRun(tasks=4, task_s=4.0, wall_s=2.1, longest_s=1.0)
    >>> batch = BatchRun(rows=100, batch_s=2.5, fixed_s=0.1, slots=2, stages=(stage,))
    >>> [round(batch_time(batch, slots).value, 3) for slots in (1, 2, 3, 4, 8)]
    [4.5, 2.5, 2.5, 1.5, 1.5]
    """
    own_s = batch.batch_s - batch.waiting_s
    if slots == batch.slots or batch.stages == ():
        return TimeRange(own_s, own_s, own_s)
    if batch.stages is None:
        scaled = batch.batch_s * batch.slots / slots
        low, high = sorted((batch.batch_s, scaled))
        return TimeRange(low, high, high)
    stages = [_stage_time(stage, batch.slots, slots, shared=batch.shared) for stage in batch.stages]
    rest_s = batch.batch_s - batch.stages_s
    return TimeRange(*(rest_s + batch.overlap * sum(times) for times in zip(*stages, strict=True)))


def _stage_time(stage: StageRun, before: int, after: int, *, shared: bool) -> TimeRange:
    longest_s = _longest_s(stage, before)
    overhead_s = _overhead_s(stage, before) - (_waiting_s(stage, before) if shared else 0.0)
    makespan = _makespan(stage, longest_s, after)
    if stage.tasks == before and after > before:
        # The number of tasks may follow the number of slots, as for a file source.
        ideal_s = max(longest_s * before / after, stage.task_s / after)
        makespan = makespan._replace(low=min(makespan.low, ideal_s))
    return TimeRange(*(seconds + overhead_s for seconds in makespan))


def _waiting_s(stage: StageRun, slots: int) -> float:
    """Return the time for which a stage waited for the tasks of other queries, if there are any."""
    return max(0.0, _overhead_s(stage, slots) - _DISPATCH_S)


def _overhead_s(stage: StageRun, slots: int) -> float:
    """Return the time of a stage beyond the time that its tasks need with these slots."""
    return max(0.0, stage.wall_s - _makespan(stage, _longest_s(stage, slots), slots).value)


def _longest_s(stage: StageRun, slots: int) -> float:
    """Return the time of the longest task. A stage whose tasks all started at once lasted as long as that task."""
    mean_s = stage.task_s / max(1, stage.tasks)
    longest_s = stage.longest_s
    if longest_s is None:
        longest_s = stage.wall_s if stage.tasks <= slots else mean_s
    return max(mean_s, min(longest_s, stage.task_s))


def _makespan(stage: StageRun, longest_s: float, slots: int) -> TimeRange:
    at_once = max(1, min(stage.tasks, slots))
    low = max(longest_s, stage.task_s / at_once)
    if longest_s * stage.tasks <= _EQUAL_TASKS * stage.task_s:
        waves = math.ceil(stage.tasks / slots)
        value = max(low, waves * stage.task_s / max(1, stage.tasks))
        return TimeRange(max(low, _EVEN * value), value, max(value, min(waves * longest_s, stage.task_s)))
    high = max(low, stage.task_s / at_once + longest_s * (1.0 - 1.0 / at_once))
    return TimeRange(low, low, high)


def capacity(
    batches: Sequence[BatchRun], slots: int, *, trigger_s: float = 0.0, limit_rows: int | None = None
) -> Estimate | None:
    """Return the rows/s that a query sustains with these slots; None without a batch that had rows.

    `limit_rows` is the largest number of rows that the source allows in a batch, if it is known.
    """
    batches = [batch for batch in batches if batch.rows > 0]
    if not batches:
        return None
    times = [batch_time(batch, slots) for batch in batches]
    limited = [(batch, time) for batch, time in zip(batches, times, strict=True) if batch.limited]
    if len(limited) > len(batches) / 2:
        return _limited_capacity([batch for batch, _ in limited], [time for _, time in limited], trigger_s)
    row_s = _row_time(batches, times)
    if limit_rows is not None:
        return _capacity_at(limit_rows, batches, times, row_s, trigger_s)
    return Estimate(
        low=1.0 / row_s.high if row_s.high > 0 else 0.0,
        value=1.0 / row_s.value if row_s.low > 0 and row_s.high <= _KNOWN * row_s.low else None,
        high=1.0 / row_s.low if row_s.low > 0 else None,
    )


def _capacity_at(
    rows: int, batches: Sequence[BatchRun], times: Sequence[TimeRange], row_s: TimeRange, trigger_s: float
) -> Estimate:
    """Return rows / D(rows) for a batch of this size, where the line D passes through the mean of the batches."""
    mean_rows = _mean([batch.rows for batch in batches])
    # A smaller C belongs to a larger A, so the ends change places for a size below the mean.
    durations = sorted(
        max(trigger_s, _mean([time[end] for time in times]) + row_s[end] * (rows - mean_rows), 1e-6) for end in range(3)
    )
    is_known = durations[2] <= _KNOWN * durations[0]
    value = rows / durations[1] if is_known else None
    return Estimate(low=rows / durations[2], value=value, high=rows / durations[0])


def capacities(
    batches: Sequence[BatchRun],
    *,
    slots_per_executor: int,
    max_executors: int,
    trigger_s: float = 0.0,
    limit_rows: int | None = None,
) -> tuple[Estimate, ...]:
    """Return the capacity with 1, 2, ... executors; empty without a batch that had rows.

    More executors never sustain less. Slots beyond twice the largest number of tasks have no further effect.
    """
    tasks = max((stage.tasks for batch in batches for stage in batch.stages or ()), default=None)
    estimates: list[Estimate] = []
    for count in range(1, max_executors + 1):
        slots = count * slots_per_executor
        if estimates and tasks is not None and slots - slots_per_executor > 2 * tasks:
            estimates.append(estimates[-1])
            continue
        estimate = capacity(batches, slots, trigger_s=trigger_s, limit_rows=limit_rows)
        if estimate is None:
            return ()
        estimates.append(estimate if not estimates else _at_least(estimate, estimates[-1]))
    return tuple(estimates)


def _at_least(estimate: Estimate, fewer: Estimate) -> Estimate:
    values = [value for value in (estimate.value, fewer.value) if value is not None]
    high = None if estimate.high is None or fewer.high is None else max(estimate.high, fewer.high)
    value = max(values) if estimate.value is not None else None
    return Estimate(low=max(estimate.low, fewer.low), value=value, high=high)


def fixed_time(batches: Sequence[BatchRun]) -> Estimate | None:
    """Return the time of a batch that does not depend on its rows, with the slots that it had."""
    batches = [batch for batch in batches if batch.rows > 0]
    if not batches:
        return None
    times = [TimeRange(batch.batch_s, batch.batch_s, batch.batch_s) for batch in batches]
    row_s = _row_time(batches, times)
    mean_s, rows = _mean([batch.batch_s for batch in batches]), _mean([batch.rows for batch in batches])
    low, high = (max(0.0, mean_s - slope * rows) for slope in (row_s.high, row_s.low))
    known = row_s.low > 0 and row_s.high <= _KNOWN * row_s.low
    return Estimate(low=low, value=min(high, max(low, mean_s - row_s.value * rows)) if known else None, high=high)


def _limited_capacity(batches: list[BatchRun], times: list[TimeRange], trigger_s: float) -> Estimate:
    """Return N / max(D(N), T) for batches of the largest size that the source allows."""
    rows = _mean([batch.rows for batch in batches])
    bounds = [max(trigger_s, _mean([time[end] for time in times])) for end in range(3)]
    spread = [max(trigger_s, time.value) for time in times]
    # A t interval of the mean batch time.
    half = 0.0
    if len(spread) > 1:
        half = float(stdtrit(len(spread) - 1, 0.5 + _LEVEL / 2)) * float(np.std(spread, ddof=1) / len(spread) ** 0.5)
    low_s, value_s, high_s = max(bounds[0] - half, trigger_s, 1e-6), bounds[1], bounds[2] + half
    return Estimate(low=rows / high_s, value=rows / value_s, high=rows / low_s)


def _row_time(batches: Sequence[BatchRun], times: Sequence[TimeRange]) -> TimeRange:
    """Return C in seconds per row with its interval."""
    rows = np.array([batch.rows for batch in batches], dtype=float)
    low_s, value_s, high_s = (np.array([time[end] for time in times]) for end in range(3))
    fixed_s = np.array([min(batch.fixed_s, time.low) for batch, time in zip(batches, times, strict=True)])
    # Each group of batches bounds C by its mean, and the largest batches bound it best.
    count = max(3, math.ceil(_LARGEST * len(rows)))
    largest = np.argsort(rows)[-count:]
    most = min(_bound(rows, high_s - fixed_s), _bound(rows[largest], (high_s - fixed_s)[largest]))
    middle = _slope(rows, value_s)
    if middle is None or middle.high <= 0:  # noise determines the slope
        return TimeRange(0.0, most, most)
    under, over = (middle, middle) if np.array_equal(low_s, high_s) else (_slope(rows, low_s), _slope(rows, high_s))
    low = max(0.0, min(middle.low, under.low if under else 0.0))
    high = min(most, max(middle.high, over.high if over else most, 0.0))
    high = max(high, most / _EXTRAPOLATED)
    low = min(low, high)
    return TimeRange(low, min(max(middle.value, low), high), high)


def _bound(rows: np.ndarray, seconds: np.ndarray) -> float:
    return float(seconds.mean() / rows.mean())


def _slope(rows: np.ndarray, seconds: np.ndarray) -> TimeRange | None:
    """Return the slope of the regression with its interval; None if the sizes do not differ or are too few."""
    if len(rows) < _MIN_FIT or float(np.ptp(rows)) <= 0.01 * float(rows.mean()):
        return None
    scale = np.full(len(rows), float(seconds.mean()))
    for _ in range(2):  # the error of a batch is a share of its time, so the fit weights each batch by its fitted time
        slope, base, _ = _least_squares(rows, seconds, scale)
        scale = np.maximum(base + slope * rows, 0.2 * float(np.median(seconds)))
    residuals = np.abs(seconds - base - slope * rows) / scale
    kept = residuals <= max(_OUTLIER * float(np.median(residuals)), 1e-6)
    if _MIN_FIT <= int(kept.sum()) < len(rows) and float(np.ptp(rows[kept])) > 0.01 * float(rows.mean()):
        rows, seconds, scale = rows[kept], seconds[kept], scale[kept]
    slope, _, error = _least_squares(rows, seconds, scale)
    half = float(stdtrit(len(rows) - 2, 0.5 + _LEVEL / 2)) * error
    return TimeRange(slope - half, slope, slope + half)


def _least_squares(rows: np.ndarray, seconds: np.ndarray, scale: np.ndarray) -> tuple[float, float, float]:
    """Return slope, intercept and the standard error of the slope (HC3), for errors in proportion to `scale`."""
    x = np.column_stack([1.0 / scale, rows / scale])
    y = seconds / scale
    inverse = np.linalg.pinv(x.T @ x)
    base, slope = inverse @ (x.T @ y)
    leverage = np.einsum("ij,jk,ik->i", x, inverse, x)
    residuals = (y - x @ np.array([base, slope])) / np.maximum(1.0 - leverage, 1e-3)
    errors = (x * residuals[:, np.newaxis]) @ inverse
    return float(slope), float(base), math.sqrt(float((errors[:, 1] ** 2).sum()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
