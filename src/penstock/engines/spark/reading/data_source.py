"""A Python data source of Spark's, made from a name, a schema and what reads; Spark ships the class to its workers."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

Reader = Callable[[dict[str, str]], DataSourceStreamReader]  # of the options that a stream was opened with


def data_source(name: str, schema: StructType, reader: Reader) -> type[DataSource]:
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return reader(dict(self.options))

    return Source
