"""A function uses each of its inputs once.

Spark reads a stream that is used twice in one query by two sources of one name, and refuses that. A fan-out of the
dataflow reads it twice by two names.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from penstock.dataflow import DataflowError
from penstock.engines.spark.jvm import analyzed_plan


def refuse_reading_twice(name: str, inputs: Iterable[DataFrame], output: DataFrame) -> None:
    if _streams(output) > sum(map(_streams, inputs)):
        raise DataflowError(
            f"the function of '{name}' uses an input more than once, which Spark cannot read twice in one query; "
            f"declare each use as an operator of its own, and give '{name}' all of them as inputs"
        )


def _streams(df: DataFrame) -> int:
    """How many streams its plan reads."""
    return sum(node.is_streaming and not node.children for node in analyzed_plan(df).walk())
