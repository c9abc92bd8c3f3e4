"""A schema may be a StructType. PySpark's own parser of DDL text is the oracle."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import penstock
from penstock.dataflow import Dataflow, DataflowError
from penstock.dataflow.ddl import ddl

SCHEMA = StructType(
    [
        StructField("user id", StringType()),
        StructField("at", TimestampType()),
        StructField("prices", MapType(StringType(), ArrayType(DecimalType(10, 2)))),
        StructField(
            "place", StructType([StructField("zip code", LongType()), StructField("tags", ArrayType(LongType()))])
        ),
    ]
)


def test_every_declaration_accepts_a_struct() -> None:
    flow = Dataflow("typed")
    rows = flow.source("rows", penstock.generate(lambda n: n, schema=SCHEMA, rows=1))
    rows.rows("same", lambda row: row, SCHEMA)
    assert flow["rows"].columns == flow["same"].columns == ("user id", "at", "prices", "place")
    assert flow.feedback("again", schema=SCHEMA).columns == flow["rows"].columns
    assert penstock.files("a.json", schema=SCHEMA).schema == ddl(SCHEMA)
    assert penstock.kafka("a", bootstrap_servers="b:1", format="json", schema=SCHEMA).schema == ddl(SCHEMA)


def test_a_struct_without_fields_is_refused() -> None:
    with pytest.raises(DataflowError, match="without fields"):
        penstock.generate(lambda n: n, schema=StructType([]), rows=1)


@pytest.mark.spark
def test_spark_reads_the_same_schema(spark: SparkSession) -> None:
    assert StructType.fromDDL(ddl(SCHEMA)) == SCHEMA
