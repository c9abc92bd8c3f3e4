"""Creates the source of a run from its declaration."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql.types import StructType

from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.operators import Operator
from penstock.dataflow.sources import Files, Generate, Replay, SparkSource
from penstock.engines.pace import Pace
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.files import FileStreamSource
from penstock.engines.spark.sources.kafka import KafkaSource
from penstock.engines.spark.sources.paced import PacedSource, generated_rows, vectorised_rows
from penstock.engines.spark.sources.replay_files import replayed_rows
from penstock.engines.spark.sources.user_dataframe import UserDataFrameSource
from penstock.engines.spark.storage.row_files import arrow_schema
from penstock.engines.spark.storage.schemas import parse_schema

_SAMPLE_ROWS = 1_000


def create_source(operator: Operator, folder: Path) -> StreamSource:
    """Create the source of a source operator; its files are kept in `folder`.

    Needs a running Spark session for the schema. Raises DataflowError if the declaration is not valid.
    """
    source, name = operator.source, operator.name
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(source, SparkSource):
        return UserDataFrameSource(name, source.fn)
    if source is None:
        raise DataflowError(f"operator '{name}' is not a source")
    schema = parse_schema(f"source '{name}'", source.schema)
    if isinstance(source, Files | Replay):
        schema = schema.toNullable()  # Spark does the same, because files are not checked for NOT NULL
    if isinstance(source, Kafka):
        return KafkaSource(name, folder, schema, source)
    if isinstance(source, Files):
        return FileStreamSource(folder, schema, _pattern(source), _file_rows(name, source, schema))
    count: int | None
    if isinstance(source, Replay):
        rows, count = replayed_rows(_pattern(source), _file_rows(name, source, schema), folder, source.repeat)
    elif isinstance(source, Generate):
        numbered = vectorised_rows if source.vectorised else generated_rows
        rows, count = numbered(name, source.fn, schema), source.rows
    else:
        raise DataflowError(f"source '{name}' is declared as {source!r}, which the Spark engine does not support")
    pace = Pace.starting(at_s=time.time(), rows_per_s=source.rows_per_s, rows=count)
    return PacedSource(name, folder, schema, rows, pace)


def row_bytes(flow: Dataflow, folder: Path) -> float | None:
    """Return the mean size of a row over all sources, or None if the size is not known for one of them.

    The size is that of the first rows, as Arrow stores them or as Kafka sends them.
    """
    sizes = []
    for operator in flow.operators:
        if operator.kind is not Kind.SOURCE:
            continue
        sample = create_source(operator, folder).sample_size(_SAMPLE_ROWS)
        if sample is None or sample.rows == 0:
            return None
        sizes.append(sample.bytes / sample.rows)
    return sum(sizes) / len(sizes) if sizes else None


def _pattern(source: Files | Replay) -> str:
    return str(Path(source.glob).absolute())


def _file_rows(name: str, source: Files | Replay, schema: StructType) -> FileRows:
    return FileRows(source=name, format=source.format, header=source.header, schema=arrow_schema(schema))
