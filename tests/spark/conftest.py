"""One Spark session for all tests of the engine: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.engines.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session("local[2]", "penstock tests")
    yield spark
    spark.stop()
