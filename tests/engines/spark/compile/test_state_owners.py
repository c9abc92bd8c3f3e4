"""The operator that owns each state of a query. Spark numbers states from the output to the inputs, left before right."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.engines.spark.compile.state_owners import state_owners

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, name: str) -> DataFrame:
    stream = spark.readStream.format("rate").name(f"rows_{name}").load().withColumnRenamed("value", name)
    return stream.withWatermark("timestamp", "1 second")


def counted(df: DataFrame, name: str) -> DataFrame:
    return df.groupBy(F.window("timestamp", "1 second"), name).agg(F.count(F.lit(1)).alias(f"n_{name}"))


def test_states_are_numbered_from_the_output_to_the_inputs(spark: SparkSession) -> None:
    frames = {"a": rows(spark, "k"), "b": rows(spark, "k2")}
    frames["left"] = counted(frames["a"], "k")
    frames["right"] = counted(frames["b"], "k2")
    frames["same"] = frames["right"].where("n_k2 > 0")
    # The function takes its inputs in the other order.
    frames["join"] = frames["same"].join(frames["left"], "window")
    frames["last"] = frames["join"].dropDuplicates(["window"]).groupBy("window").agg(F.count(F.lit(1)))
    inputs = {"a": [], "b": [], "left": ["a"], "right": ["b"], "same": ["right"], "join": ["left", "same"]}
    owners = state_owners("last", frames, {**inputs, "last": ["join"]})
    assert owners == ("last", "last", "join", "right", "left")
    inputs["join"] = ["left", "same", "b"]  # 'b' is not an input of the function
    assert state_owners("last", frames, {**inputs, "last": ["join"]}) is None
