"""The query that starts Python processes early runs through all of them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.engines.spark.sources.python_processes import small_query

pytestmark = pytest.mark.spark


def test_each_slot_has_a_row(spark: SparkSession) -> None:
    assert sorted(row.id for row in small_query(spark).collect()) == [0, 1]  # the session of the tests has two slots
