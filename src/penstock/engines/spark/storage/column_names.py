"""Column names that Spark would resolve to another column.

Spark reads a dot as a field of a struct, and treats names that differ only in case as equal. Names are therefore quoted
where they are passed to Spark, and rows are passed to Python functions by position where a bare name is ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def quoted(name: str) -> str:
    """Return a column name in backticks.

    >>> print(quoted("a.b"), quoted("a`b"))
    `a.b` `a``b`
    """
    return f"`{name.replace('`', '``')}`"


def has_ambiguous_names(names: list[str]) -> bool:
    """Return whether Spark cannot find each of these columns by its bare name.

    >>> has_ambiguous_names(["k", "v"]), has_ambiguous_names(["a.b"]), has_ambiguous_names(["k", "K"])
    (False, True, True)
    """
    return any("." in name or "`" in name for name in names) or len({name.lower() for name in names}) < len(names)


def repeated_name(names: Iterable[str], *, ignores_case: bool = False) -> str | None:
    """Return a name that occurs twice, or None.

    >>> repeated_name(["k", "v", "K"]), repeated_name(["k", "v", "K"], ignores_case=True), repeated_name(["k", "k"])
    (None, 'K', 'k')
    """
    seen: set[str] = set()
    for name in names:
        key = name.lower() if ignores_case else name
        if key in seen:
            return name
        seen.add(key)
    return None


def map_in_arrow(
    df: DataFrame, function: ArrowFunction, schema: str | StructType, profile: ResourceProfile | None = None
) -> DataFrame:
    """Call `DataFrame.mapInArrow` for columns of any name; the function sees the original names.

    The stage of the function runs with the resource profile, or with the default one if it is None.
    """
    names = df.columns
    if not has_ambiguous_names(names):
        return df.mapInArrow(function, schema, profile=profile)

    def with_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"_{position}" for position in range(len(names)))).mapInArrow(with_names, schema, profile=profile)
