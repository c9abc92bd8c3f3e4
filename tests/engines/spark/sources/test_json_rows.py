"""JSON that Spark writes is read back without changes."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.engines.spark.sources.json_rows import decode_timestamp, row_type
from penstock.engines.spark.storage.row_files import arrow_schema

pytestmark = pytest.mark.spark

ROW = """
    true as flag, 7Y as tiny, -9223372036854775808L as big, 0.1F as small, 1e300D as large,
    'a "quoted" word' as word, X'00FF10' as bytes, date'1969-12-31' as day, timestamp'2026-01-01 12:34:56.789' as at,
    timestamp_ntz'2026-01-01 12:34:56.789' as local, 12345678901234567890.123456789BD as exact,
    map('a', 1, 'b', null) as counts, map(7, array(date'2026-01-31')) as days,
    named_struct('x', map('k', named_struct('y', X'01'))) as nested,
    array(named_struct('at', timestamp'2026-01-01 00:00:00'), null) as several, cast(null as date) as nothing
"""


def test_the_output_of_to_json_is_read_back(spark: SparkSession) -> None:
    df = spark.sql(f"select {ROW}")
    schema = arrow_schema(df.schema)
    (written,) = df.selectExpr("to_json(struct(*)) as value").collect()
    row = msgspec.json.decode(written.value, type=row_type(schema), dec_hook=decode_timestamp)
    assert pa.RecordBatch.from_pylist([row], schema=schema).to_pylist() == df.toArrow().to_pylist()
