"""Columns by the very names they have, where Spark would look for others.

Spark takes a dot for a field of a struct, and names that differ only in case for one. So a name is quoted where it is
handed to Spark, and rows go to a Python function by position where a name would not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

OverBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def quoted(name: str) -> str:
    """
    >>> print(quoted("a.b"), quoted("a`b"))
    `a.b` `a``b`
    """
    return f"`{name.replace('`', '``')}`"


def mistakable(names: list[str]) -> bool:
    """Whether Spark would not find each of these columns by its bare name.

    >>> mistakable(["k", "v"]), mistakable(["a.b"]), mistakable(["k", "K"])
    (False, True, True)
    """
    return any("." in name or "`" in name for name in names) or len({name.lower() for name in names}) < len(names)


def map_in_arrow(df: DataFrame, fn: OverBatches, schema: str) -> DataFrame:
    """Spark's own, which finds columns by their bare names; the function sees them as they are called."""
    names = df.columns
    if not mistakable(names):
        return df.mapInArrow(fn, schema)

    def over(batches: Any) -> Iterator[pa.RecordBatch]:
        return fn(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"_{place}" for place in range(len(names)))).mapInArrow(over, schema)
