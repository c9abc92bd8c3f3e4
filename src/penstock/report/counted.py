"""Rows by window, from the totals since the run began."""

from __future__ import annotations

import msgspec

from penstock.measure.window import OperatorWindow, Window


class Counted:
    """Takes windows one after another. What is processed while a plan changes is in the next total, but in no window's
    own count; what a window says itself stands where it has no total."""

    def __init__(self) -> None:
        self._before: dict[str, OperatorWindow] = {}

    def counted(self, window: Window) -> Window:
        return msgspec.structs.replace(window, operators=tuple(map(self._operator, window.operators)))

    def _operator(self, one: OperatorWindow) -> OperatorWindow:
        before = self._before.get(one.operator)
        self._before[one.operator] = one
        if before is None:
            return one
        return msgspec.structs.replace(
            one,
            rows_in=_since(before.rows_in_total, one.rows_in_total, one.rows_in),
            rows_out=_since(before.rows_out_total, one.rows_out_total, one.rows_out),
        )


def _since(before: int | None, total: int | None, own: int | None) -> int | None:
    return own if before is None or total is None or total < before else total - before
