"""A keyed count that keeps its state in a StatefulProcessor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

_A_DAY_MS = 86_400_000


def count_with_processor(df: DataFrame) -> DataFrame:
    """Return the count `n` of each key `k`.

    The state expires after a day, so Spark runs batches without rows for ever. The engine must become idle nevertheless.
    """

    class Counting(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.n = handle.getValueState("n", StructType([StructField("n", LongType())]), _A_DAY_MS)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            n = (self.n.get()[0] if self.n.exists() else 0) + sum(len(frame) for frame in rows)
            self.n.update((n,))
            yield pd.DataFrame({"k": [key[0]], "n": [n]})

        def close(self) -> None:
            pass

    return df.groupBy("k").transformWithStateInPandas(Counting(), "k bigint, n bigint", "Update", "ProcessingTime")
