"""From a declared source to a live one."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql.types import StructType

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.operators import Operator
from penstock.dataflow.sources import Files, Generate, Replay, SparkSource
from penstock.engines.pace import Pace
from penstock.engines.spark.sources.contract import StreamSource
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.files import FileStreamSource
from penstock.engines.spark.sources.kafka import KafkaSource
from penstock.engines.spark.sources.paced import PacedSource, generated
from penstock.engines.spark.sources.replay_files import replayed
from penstock.engines.spark.sources.user_dataframe import UserDataFrameSource
from penstock.engines.spark.storage.columns import declared_columns
from penstock.engines.spark.storage.row_files import arrow_schema


def create_source(operator: Operator, folder: Path) -> StreamSource:
    """Needs a running Spark for the schema; writes what it must remember to `folder`."""
    source, name = operator.source, operator.name
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(source, SparkSource):
        return UserDataFrameSource(name, source.fn)
    schema = declared_columns(f"source '{name}'", source.schema)
    if isinstance(source, Files | Replay):
        schema = schema.toNullable()  # as Spark does: nobody has looked whether a file holds what is NOT NULL
    if isinstance(source, Kafka):
        return KafkaSource(name, folder, schema, source)
    if isinstance(source, Files):
        return FileStreamSource(folder, schema, _pattern(source), _form(name, source, schema))
    if isinstance(source, Replay):
        rows, count = replayed(_pattern(source), _form(name, source, schema), folder, source.repeat)
    elif isinstance(source, Generate):
        rows, count = generated(name, source.fn, schema), source.rows
    else:
        raise DataflowError(f"operator '{name}' is not a source that this engine knows: {source!r}")
    pace = Pace.starting(at_s=time.time(), rows_per_s=source.rows_per_s, rows=count)
    return PacedSource(name, folder, schema, rows, pace)


def _pattern(source: Files | Replay) -> str:
    return str(Path(source.glob).absolute())


def _form(name: str, source: Files | Replay, schema: StructType) -> FileRows:
    return FileRows(source=name, format=source.format, header=source.header, schema=arrow_schema(schema))
