"""Declared keys are columns by which the function groups rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.engines.spark.compile.keys import check_grouping
from tests.support.counting_processor import count_with_processor

pytestmark = pytest.mark.spark


def windows(df: DataFrame) -> DataFrame:
    return df.groupBy(F.window("at", "10 seconds", "5 seconds"), "auction").count()


def latest(df: DataFrame) -> DataFrame:
    def fn(key: Any, frames: Any, state: Any) -> Any:
        yield from frames

    return df.groupBy("auction").applyInPandasWithState(fn, "auction bigint", "n bigint", "update", "NoTimeout")


def renamed(df: DataFrame) -> DataFrame:
    return df.withColumn("a", F.col("auction") % 10).groupBy("a").count()


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.format("rate").name("bids").load()
    columns = stream.selectExpr("timestamp as at", "value as auction", "value as k", "value % 7 as bidder")
    return columns.withWatermark("at", "1 second")


SINGLE = {
    "groupBy": (lambda df: df.groupBy("auction").count(), ["auction"]),
    "more_columns": (lambda df: df.groupBy("auction", "k").count(), ["auction"]),
    "window": (windows, ["auction"]),
    "time_of_window": (lambda df: df.groupBy(F.window("at", "5 seconds")).count(), ["at"]),
    "time_of_sliding_window": (lambda df: df.groupBy(F.window("at", "10 seconds", "5 seconds")).count(), ["at"]),
    "time_of_session": (lambda df: df.groupBy(F.session_window("at", "5 seconds")).count(), ["at"]),
    "computed": (renamed, ["auction"]),
    "renamed": (lambda df: df.withColumnRenamed("auction", "a").groupBy("a").count(), ["auction"]),
    "dropDuplicates": (lambda df: df.dropDuplicates(["auction", "at"]), ["auction"]),
    "dropDuplicatesWithinWatermark": (lambda df: df.dropDuplicatesWithinWatermark(["auction"]), ["auction"]),
    "applyInPandasWithState": (latest, ["auction"]),
    "transformWithState": (count_with_processor, ["k"]),
}


@pytest.mark.parametrize(("fn", "keys"), SINGLE.values(), ids=SINGLE)
def test_keys_are_columns_of_the_grouping(
    bids: DataFrame, fn: Callable[[DataFrame], DataFrame], keys: list[str]
) -> None:
    check_grouping("count", keys, [bids], fn(bids))
    with pytest.raises(
        penstock.DataflowError,
        match=rf"^operator 'count' has keys=\['bidder'\], but its function does not group by 'bidder'; it groups by .*{keys[0]}.*; declare the columns that it groups by as keys",
    ):
        check_grouping("count", ["bidder"], [bids], fn(bids))


def test_keys_of_a_join_are_in_its_condition_on_both_sides(spark: SparkSession, bids: DataFrame) -> None:
    other = spark.readStream.format("rate").name("others").load().selectExpr("value as auction", "value as bidder")
    renamed_other = other.withColumnRenamed("auction", "a")
    for joined in (
        bids.join(other, "auction"),
        bids.join(other, bids.auction == other.auction),
        bids.join(renamed_other, F.col("auction") == F.col("a")),
    ):
        check_grouping("join", ["auction"], [bids, other], joined)
        with pytest.raises(penstock.DataflowError, match="does not group by 'bidder'; it groups by auction"):
            check_grouping("join", ["bidder"], [bids, other], joined)


def test_a_function_without_state_is_not_checked(bids: DataFrame) -> None:
    check_grouping("same", ["bidder"], [bids], bids.where("k > 1"))
