"""The base class of stream readers, and the options with which a query opens one.

A reader is a Python data source of Spark. Spark pickles its class and creates readers in separate Python processes: one
that answers questions about offsets, and workers that read partitions.
"""

from __future__ import annotations

import re
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.reading.batch_sizer import BatchSizer, size_file
from penstock.engines.spark.reading.busy_time import ReaderBusyTime
from penstock.engines.spark.reading.gate import Gate
from penstock.engines.spark.reading.offsets import Offset, load_start_offset, with_start_id, without_start_id

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """How a query reads a source or a channel."""

    name: str  # the name of the source in Spark's checkpoint
    replicas: int  # exact number of partitions
    query: str  # the checkpoint of the query
    opens_at: int  # the generation of the query's plan
    run: Path
    batch_s: float  # the target duration of a batch
    max_rows: int | None  # maximum rows of a batch
    shares: tuple[float, ...] = ()  # share of the rows of each partition; empty: equal shares

    def to_spark(self) -> dict[str, str]:
        """Return the options as Spark passes them on. Each call has a new start id."""
        return {
            "name": self.name,
            "replicas": str(self.replicas),
            "query": self.query,
            "opens_at": str(self.opens_at),
            "run": str(self.run),
            "batch_s": str(self.batch_s),
            "max_rows": str(self.max_rows or ""),
            "shares": " ".join(map(repr, self.shares)),
            "start_id": str(time.time_ns() // 1_000_000),
        }

    @staticmethod
    def from_spark(options: dict[str, str]) -> ReaderOptions:
        return ReaderOptions(
            name=options["name"],
            replicas=int(options["replicas"]),
            query=options["query"],
            opens_at=int(options["opens_at"]),
            run=Path(options["run"]),
            batch_s=float(options["batch_s"]),
            max_rows=int(options["max_rows"]) if options["max_rows"] else None,
            shares=tuple(map(float, options.get("shares", "").split())),
        )


class StreamReader(DataSourceStreamReader):
    """Reads one source or channel for one query. It applies the gate, the start offset and the batch size.

    Subclasses implement `next_offset`, `partitions` and `batches`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        parsed = ReaderOptions.from_spark(options)
        self._options = parsed
        self._start_id = int(options["start_id"])
        self._gate = Gate(parsed.run, parsed.query, parsed.opens_at)
        self._busy_time = ReaderBusyTime(parsed.run, parsed.name)
        self.replicas = parsed.replicas
        self.shares = parsed.shares
        self.sizer = BatchSizer(
            parsed.batch_s,
            max_rows=parsed.max_rows,
            replicas=parsed.replicas,
            file=size_file(parsed.run, parsed.name),
        )

    @abstractmethod
    def next_offset(self, start: Offset) -> Offset | None:
        """Return where the next batch ends, `start` if there are no rows, or None if the end is not known now."""

    @abstractmethod
    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        """Return exactly `replicas` input partitions, each with its share of the rows between two offsets."""

    @abstractmethod
    def batches(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition. Runs on a worker."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        return load_start_offset(self._options.run, self._options.query, self._options.name)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self.sizer.batch_ended()
        if self._gate.is_closed():
            return start
        end = self.next_offset(without_start_id(start))
        return start if end is None else with_start_id(end, self._start_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._busy_time.measure(self.batches(partition))


CreateReader = Callable[[dict[str, str]], StreamReader]  # the argument holds the options that Spark passes on


def data_source(name: str, schema: StructType, create_reader: CreateReader) -> type[DataSource]:
    """Return a data source class with this name and schema. Spark ships the class to its workers."""

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return create_reader(dict(self.options))

    return Source


def open_stream(spark: SparkSession, source: type[DataSource], options: ReaderOptions) -> DataFrame:
    """Return the streaming DataFrame of a data source, named for Spark's source evolution."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # In a second session, Spark takes the sources that its Python workers have loaded for the first one for
        # installed ones, which cannot be registered again.
        source = _with_unique_name(source)
        spark.dataSource.register(source)
    try:
        return spark.readStream.format(source.name()).name(options.name).options(**options.to_spark()).load()
    except AnalysisException as error:
        raise _without_module(spark, error) or error from None


def _without_module(spark: SparkSession, error: AnalysisException) -> PenstockError | None:
    """Return a clear error if the interpreter of the workers lacks a module. The user's session may have chosen it."""
    missing = _MISSING_MODULE.search(str(error))
    if missing is None:
        return None
    return PenstockError(
        f"The Python workers of the Spark session run '{spark.sparkContext.pythonExec}', which has no module "
        f"'{missing[1]}'; set the environment variable PYSPARK_PYTHON={sys.executable} before the session starts."
    )


def _with_unique_name(source: type[DataSource]) -> type[DataSource]:
    unique = f"{source.name()}_{uuid4().hex[:8]}"

    class Renamed(source):  # type: ignore[misc,valid-type]
        @classmethod
        def name(cls) -> str:
            return unique

    return Renamed
