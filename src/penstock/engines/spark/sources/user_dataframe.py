"""A streaming DataFrame that the user creates. Only Spark knows its offsets, so its query is never changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.dataflow.function_errors import user_function_error
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions


class UserDataFrameSource:
    def __init__(self, name: str, function: Callable[[SparkSession], Any]) -> None:
        self._name = name
        self._function = function

    def read(self, spark: SparkSession, options: ReaderOptions) -> DataFrame:
        try:
            df = self._function(spark)
        except (AnalysisException, PenstockError):  # their messages are sufficient
            raise
        except Exception as error:
            raise user_function_error(f"source '{self._name}'", self._function, error) from error
        if not isinstance(df, DataFrame) or not df.isStreaming:
            raise DataflowError(
                f"the function of source '{self._name}' returns {type(df).__name__}, not a streaming DataFrame; "
                "return one, such as spark.readStream.format(...).load()"
            )
        return df.repartition(options.replicas)

    def first(self) -> Offset:
        return {}

    def available(self) -> None:
        return None

    def rows_between(self, start: Offset, end: Offset) -> None:
        return None

    def append_times(self, start: Offset, end: Offset) -> None:
        return None

    def sample_size(self, rows: int) -> None:
        return None

    def resume(self, read_up_to: Offset) -> None:
        """Do nothing: Spark resumes the DataFrame from its checkpoint."""

    def start_clock(self) -> None:
        """Do nothing: only Spark reads the DataFrame."""

    def set_rate(self, rows_per_s: float) -> None:
        raise PenstockError(f"source '{self._name}' is a user-defined DataFrame: Penstock cannot change its rate")

    def has_ended(self, at: Offset) -> bool:
        return False
