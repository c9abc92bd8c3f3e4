"""StageRun: the measurements of one stage of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One stage of a batch."""

    tasks: int
    task_s: float  # sum over its tasks
    wall_s: float  # time between its submission and its end
    longest_s: float | None = None  # longest task; None: unknown
