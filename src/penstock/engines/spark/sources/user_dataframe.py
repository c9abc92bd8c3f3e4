"""A streaming DataFrame of the user's. Only Spark knows its offsets, so its query is cut off and never changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.engines.spark.sources.contract import Offset, Reading


class UserDataFrameSource:
    def __init__(self, name: str, fn: Callable[[SparkSession], Any]) -> None:
        self._name = name
        self._fn = fn

    def read(self, spark: SparkSession, how: Reading) -> DataFrame:
        df = self._fn(spark)
        if not isinstance(df, DataFrame) or not df.isStreaming:
            raise DataflowError(
                f"the function of source '{self._name}' gives {type(df).__name__}, not a streaming DataFrame"
            )
        return df.repartition(how.replicas)

    def first(self) -> Offset:
        return {}

    def available(self) -> None:
        return None

    def rows_between(self, start: Offset, end: Offset) -> None:
        return None

    def append_times(self, start: Offset, end: Offset) -> None:
        return None

    def size_of(self, rows: int) -> None:
        return None

    def resume(self, read_up_to: Offset) -> None:
        """Spark resumes it from its checkpoint."""

    def set_rate(self, rows_per_s: float) -> None:
        raise PenstockError(f"source '{self._name}' is a DataFrame of yours: Penstock cannot change its rate")

    def ended(self, at: Offset) -> bool:
        return False
