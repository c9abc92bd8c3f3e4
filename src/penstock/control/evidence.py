"""The evidence on a plan change: the windows before and after it, compared with what is required of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.control.evaluation import OutcomeBound, throughput_per_s
from penstock.control.policy import Situation, latency_s
from penstock.control.significance import exceeds, falls_below
from penstock.measure.window import Window

MOST_WINDOWS = 60  # after which a difference that is still within the noise is accepted
_LOOKS = 1.4  # each look at the windows has so many times those of the one before


class Evidence:
    """The windows of the current plan and of the previous plan."""

    def __init__(self, averaged: int) -> None:
        self._averaged = averaged  # windows that the policy and the record of a decision average
        self._before: tuple[Window, ...] = ()
        self._after: list[Window] = []
        self._looked_at = 0

    def add(self, window: Window) -> None:
        self._after = [*self._after[-MOST_WINDOWS:], window]

    def plan_changed(self) -> None:
        self._before = tuple(self._after)
        self.forget_plan()

    def forget_plan(self) -> None:
        """Forget the windows of the current plan, which describe the past."""
        self._after, self._looked_at = [], 0

    @property
    def is_complete(self) -> bool:
        return len(self._after) >= MOST_WINDOWS

    def met(self, bound: OutcomeBound, situation: Situation, quantile: float | None) -> bool:
        """Return whether the mean of all windows of the plan is within the bound. An unknown mean is."""
        values = _values(bound, situation, self._after, quantile)
        if not values:
            return True
        mean = math.fsum(values) / len(values)
        return mean >= bound.value if bound.is_least else mean <= bound.value

    def refutes(self, missed: Sequence[OutcomeBound], situation: Situation, quantile: float | None) -> bool:
        """Return whether the windows miss one of the bounds by more than noise.

        Each look may be wrong by chance, so there are few of them: it returns False for most windows.
        """
        if len(self._after) < max(self._averaged, _LOOKS * self._looked_at):
            return False
        self._looked_at = len(self._after)
        return any(self._is_beyond_noise(bound, situation, quantile) for bound in missed)

    def _is_beyond_noise(self, bound: OutcomeBound, situation: Situation, quantile: float | None) -> bool:
        test = falls_below if bound.is_least else exceeds
        return test(
            _values(bound, situation, self._after, quantile),
            bound.value,
            before=_values(bound, situation, self._before, quantile),
            share=bound.share,
            averaged=self._averaged,
        )


def _values(
    bound: OutcomeBound, situation: Situation, windows: Sequence[Window], quantile: float | None
) -> list[float]:
    values = (
        throughput_per_s(situation, window) if bound.is_least else latency_s(window.latency, quantile)
        for window in windows
    )
    return [value for value in values if value is not None]
