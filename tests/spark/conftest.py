"""One Spark session for all tests of the engine: it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.engines.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Workers unpickle functions of the tests by the name of their module.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    spark = session("local[2]", "penstock tests")
    yield spark
    spark.stop()
