"""Windows that consist of a number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operator_class import operator
from penstock.dataflow.schedule import Schedule, when_all


@operator(inputs=1)
class TumblingWindow:
    """Emits one result for each `rows` consecutive rows.

    Declare it with keys (windows per key) or with `global_state=True`. Rows of an incomplete window wait.

    Args:
        rows: Rows of a window.
        result: Function of the rows of a window. It returns the output row, or None.

    Raises:
        DataflowError: `rows` is not a whole number above 0.

    >>> import penstock
    >>> total = TumblingWindow(rows=2, result=lambda rows: {"total": sum(row["n"] for row in rows)})
    >>> runner = penstock.OperatorRunner(total, global_state=True, schema="total int")
    >>> runner.feed([{"n": n} for n in range(5)])
    [{'total': 1}, {'total': 5}]
    """

    def __init__(self, rows: int, result: Callable[[list[dict[str, Any]]], Mapping[str, Any] | None]) -> None:
        self._rows = _checked("TumblingWindow", "rows", rows)
        self._result = result

    def schedule(self, config: Mapping[str, Any]) -> Schedule:
        return when_all(rows=self._rows)

    def invoke(self, ctx: Any) -> None:
        emitted = self._result(ctx.rows())
        if emitted is not None:
            ctx.emit(emitted)


@operator(inputs=1, needs_state=True)
class SlidingWindow:
    """Emits a result for the last `rows` rows after each `slide` new rows, as soon as the first window is complete.

    Declare it with keys (windows per key) or with `global_state=True`. The rows that the next window needs are
    kept in `ctx.state`, which must be able to store their values.

    Args:
        rows: Rows of a window.
        result: Function of the rows of a window, the oldest first. It returns the output row, or None.
        slide: New rows between two results. Rows between windows are skipped if it exceeds `rows`.

    Raises:
        DataflowError: `rows` or `slide` is not a whole number above 0.

    >>> import penstock
    >>> total = SlidingWindow(rows=3, slide=1, result=lambda rows: {"total": sum(row["n"] for row in rows)})
    >>> runner = penstock.OperatorRunner(total, global_state=True, schema="total int")
    >>> runner.feed([{"n": n} for n in range(5)])
    [{'total': 3}, {'total': 6}, {'total': 9}]
    """

    def __init__(
        self, rows: int, result: Callable[[list[dict[str, Any]]], Mapping[str, Any] | None], slide: int = 1
    ) -> None:
        self._rows = _checked("SlidingWindow", "rows", rows)
        self._slide = _checked("SlidingWindow", "slide", slide)
        self._result = result

    def invoke(self, ctx: Any) -> None:
        skipped = ctx.state.get("skip", 0)
        if skipped:
            ctx.state["skip"] = skipped - 1
            return
        window = [*ctx.state.get("rows", ()), ctx.row]
        if len(window) == self._rows:
            emitted = self._result(window)
            if emitted is not None:
                ctx.emit(emitted)
            window = window[self._slide :]
            ctx.state["skip"] = max(0, self._slide - self._rows)
        ctx.state["rows"] = window


def _checked(window: str, option: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise DataflowError(f"{window} has {option}={number!r}; give a whole number of rows, 1 or more.")
    return number
