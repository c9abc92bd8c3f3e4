"""The barrier: it waits for rows of all ports, and combines them (Kahveci and Gedik, JPDC 2020, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.dataflow.operator_class import operator
from penstock.dataflow.schedule import Schedule, when_all


@operator
class Barrier:
    """Combines the i-th row of a key at each port into one row.

    Declare it with the keys and the schema of the output. Any number of input ports is possible.

    Args:
        combine: Function of one row (a dict) per port. It returns the output row. The default merges the rows; a column
            that several rows have is taken from the last one.

    >>> import penstock
    >>> runner = penstock.OperatorRunner(Barrier(), inputs=2, keys=["k"], schema="k int, a int, b int")
    >>> runner.feed([{"k": 1, "a": 5}], [])
    []
    >>> runner.feed([], [{"k": 1, "b": 6}])
    [{'k': 1, 'a': 5, 'b': 6}]
    """

    def __init__(self, combine: Callable[..., Mapping[str, Any]] | None = None) -> None:
        self._combine = combine

    def schedule(self, config: Mapping[str, Any]) -> Schedule:
        return when_all(rows=1, count="equal")

    def invoke(self, ctx: Any) -> None:
        for rows in zip(*map(ctx.rows, range(ctx.inputs)), strict=True):
            if self._combine is not None:
                ctx.emit(self._combine(*rows))
                continue
            merged: dict[str, Any] = {}
            for row in rows:
                merged |= row
            ctx.emit(merged)
