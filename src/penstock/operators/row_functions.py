"""Operators that call a function of one row. They are stateless, take any number of input ports, and have replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.dataflow.operator_class import operator
from penstock.dataflow.schedule import Schedule, when_any

Row = Mapping[str, Any]


class _EachRow:
    """Receives all rows that have arrived, one port at a time."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function

    def schedule(self, config: Mapping[str, Any]) -> Schedule:
        return when_any(rows=1, count="at least")

    def invoke(self, ctx: Any) -> None:
        for row in ctx.rows(ctx.port):
            self.process(row, ctx)

    def process(self, row: dict[str, Any], ctx: Any) -> None:
        raise NotImplementedError


@operator
class Map(_EachRow):
    """Emits what the function returns for each row.

    >>> import penstock
    >>> double = Map(lambda row: {"n": 2 * row["n"]})
    >>> penstock.OperatorRunner(double, schema="n int").feed([{"n": 1}, {"n": 2}])
    [{'n': 2}, {'n': 4}]
    """

    def process(self, row: dict[str, Any], ctx: Any) -> None:
        ctx.emit(self._function(row))


@operator
class Filter(_EachRow):
    """Emits the rows for which the function returns true.

    >>> import penstock
    >>> penstock.OperatorRunner(Filter(lambda row: row["n"] > 1), schema="n int").feed([{"n": 1}, {"n": 2}])
    [{'n': 2}]
    """

    def process(self, row: dict[str, Any], ctx: Any) -> None:
        if self._function(row):
            ctx.emit(row)


@operator
class FlatMap(_EachRow):
    """Emits all rows that the function returns for each row.

    >>> import penstock
    >>> words = FlatMap(lambda row: [{"word": word} for word in row["text"].split()])
    >>> penstock.OperatorRunner(words, schema="word string").feed([{"text": "to be"}])
    [{'word': 'to'}, {'word': 'be'}]
    """

    def process(self, row: dict[str, Any], ctx: Any) -> None:
        made: Iterable[Row] = self._function(row)
        for emitted in made:
            ctx.emit(emitted)


@operator
class ForEach(_EachRow):
    """Calls the function for each row, and emits the row unchanged.

    After a failure the function may be called again for the same rows.

    >>> import penstock
    >>> seen = []
    >>> penstock.OperatorRunner(ForEach(seen.append), schema="n int").feed([{"n": 1}]), seen
    ([{'n': 1}], [{'n': 1}])
    """

    def process(self, row: dict[str, Any], ctx: Any) -> None:
        self._function(dict(row))
        ctx.emit(row)
