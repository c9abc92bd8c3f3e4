"""Sums over the calls of tasks, from which rates and means are computed."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(slots=True)
class CallSums:
    """Sums over calls. Sums of several tasks are added; the difference of two totals is a span of time."""

    rows: int = 0
    wait_s: float = 0.0  # time between the arrival of a row in its task and its first call
    calls: int = 0  # including retries
    call_s: float = 0.0
    retries: int = 0
    timeouts: int = 0
    failed_rows: int = 0
    abandoned: int = 0  # calls that had not returned after their timeout when their task ended

    def __add__(self, other: CallSums) -> CallSums:
        return CallSums(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: CallSums) -> CallSums:
        return CallSums(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))
