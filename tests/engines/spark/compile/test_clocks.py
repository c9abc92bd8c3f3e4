"""Clocks around the Python functions of a user do not change their results."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from pyspark.sql.udf import UserDefinedFunction

from penstock.engines.spark.compile.clocks import Timing, _over_processor, _timed_udf


class Context:
    def accumulator(self, value: Any, _: Any = None) -> Any:
        sums = SimpleNamespace(value=value)
        sums.add = lambda more: setattr(sums, "value", sums.value + more)
        return sums


def test_a_processor_that_is_handed_over_again_has_one_clock() -> None:
    class Echo:
        def init(self, handle: str) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:  # noqa: N802
            yield from ((self.handle, row) for row in rows)

    echo, clocks = Echo(), [Timing(Context(), every=1) for _ in range(3)]
    handed_over = [_over_processor(timing, echo) for timing in clocks]
    assert "handleInputRows" not in vars(echo)
    handed_over[-1].init("state")  # Spark also calls `init` on the processor
    assert list(handed_over[-1].handleInputRows("k", iter([1, 2]), None)) == [("state", 1), ("state", 2)]
    assert [timing.seconds.value > 0 for timing in clocks] == [False, False, True]


def test_a_udf_keeps_the_name_that_its_column_gets() -> None:
    timing = Timing(Context(), every=1)
    for udf in (UserDefinedFunction(lambda n: n, name="same"), UserDefinedFunction(functools.partial(pow, 2))):
        assert _timed_udf(udf, timing)._name == udf._name
