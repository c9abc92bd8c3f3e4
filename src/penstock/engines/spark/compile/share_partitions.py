"""Partitions with unequal shares: a hash gives each row a key group, and a table gives each group a partition."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.engines.spark.reading.shares import KEY_GROUPS, replica_of_groups
from penstock.engines.spark.storage.column_names import quoted

_NOT_HASHED = ("map<", "variant")


def by_shares(df: DataFrame, shares: Sequence[float], keys: Sequence[str]) -> DataFrame:
    """Return the rows in partitions with these shares. Rows with equal keys are in one partition.

    Without keys, the hash is that of all columns. It must depend on nothing else: a task that runs again must give each
    row the same partition.
    """
    columns = keys or [
        field.name for field in df.schema if not any(word in field.dataType.simpleString() for word in _NOT_HASHED)
    ]
    if not columns:
        return df.repartition(len(shares))
    table = F.array(*map(F.lit, replica_of_groups(KEY_GROUPS, shares)))
    group = F.pmod(F.xxhash64(*map(quoted, columns)), F.lit(KEY_GROUPS)).cast("int")
    return df.repartitionById(len(shares), F.get(table, group))
