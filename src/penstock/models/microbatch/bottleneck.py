"""The bottleneck of a micro-batch query: the part of its batches that limits the rows per second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.models.microbatch.capacity import BatchRun

_MIN_BATCHES = 2
_SKEWED = 2.0  # longest task / mean task from which a stage counts as skewed
_VARIED = 0.1  # standard deviation of the batch sizes / mean, above which the parts are compared by their cost per row


class _Part(NamedTuple):
    text: str
    rows: Sequence[int]  # one number for each batch
    seconds: Sequence[float]  # time of this part, for each batch

    @property
    def mean_s(self) -> float:
        return float(np.mean(self.seconds))

    @property
    def per_row_s(self) -> float:
        """Return the slope of a regression line through the batches."""
        rows = np.array(self.rows, dtype=float)
        centred = rows - rows.mean()
        squares = float(centred @ centred)
        return float(centred @ np.array(self.seconds)) / squares if squares > 0 else 0.0


def bottleneck(batches: Sequence[BatchRun], *, trigger_s: float = 0.0) -> str | None:
    """Return the part that limits the capacity, in words; None if the stages of the batches are unknown.

    Batches of different sizes show the cost of a row in each part. Otherwise the part with the longest time counts.
    """
    timed = [batch for batch in batches if batch.stages is not None and batch.rows > 0]
    if len(timed) < _MIN_BATCHES:
        return None
    rows = np.array([batch.rows for batch in timed], dtype=float)
    mean_s = float(np.mean([batch.batch_s for batch in timed]))
    if sum(batch.limited for batch in timed) > len(timed) / 2 and mean_s < trigger_s:
        return f"the limit of the source, {rows.mean():.0f} rows per trigger of {trigger_s:g} s"
    count = max(len(batch.stages or ()) for batch in timed)
    alike = [batch for batch in timed if batch.stages is not None and len(batch.stages) == count]
    sizes = [batch.rows for batch in timed]
    parts = [
        _Part("the driver", sizes, [batch.batch_s - batch.stages_s for batch in timed]),
        _Part("the wait for slots that other queries use", sizes, [batch.waiting_s for batch in timed]),
        *(_stage(alike, index, count) for index in range(count)),
    ]
    if float(rows.std()) > _VARIED * float(rows.mean()):
        total_s = sum(max(0.0, part.per_row_s) for part in parts)
        if total_s > 0:
            part = max(parts, key=lambda part: part.per_row_s)
            return f"{part.text}, {min(1.0, part.per_row_s / total_s):.0%} of the time per row"
    part = max(parts, key=lambda part: part.mean_s)
    return f"{part.text}, {min(1.0, part.mean_s / mean_s):.0%} of a batch" if mean_s > 0 else part.text


def _stage(batches: Sequence[BatchRun], index: int, count: int) -> _Part:
    stages = [batch.stages[index] for batch in batches if batch.stages is not None]
    tasks, slots = round(float(np.mean([stage.tasks for stage in stages]))), batches[-1].slots
    longest = [stage.longest_s * stage.tasks / stage.task_s for stage in stages if stage.longest_s and stage.task_s > 0]
    text = f"stage {index + 1} of {count} ({_count(tasks, 'task')} on {_count(slots, 'slot')}"
    if longest and float(np.mean(longest)) >= _SKEWED:
        text += f", the longest task takes {float(np.mean(longest)):.1f} times the mean"
    return _Part(f"{text})", [batch.rows for batch in batches], [batch.stage_s(index) for batch in batches])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"
