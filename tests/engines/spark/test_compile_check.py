"""Dataflows that Spark would not run are refused before anything starts, with the alternative."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock

pytestmark = pytest.mark.spark


def windows(df: DataFrame) -> DataFrame:
    return df.groupBy(F.window("at", "5 seconds"), "k").count()


def start_of_windows(df: DataFrame) -> DataFrame:
    return windows(df).select(F.col("window.start").alias("at"), "k", "count")


def flow_of(declare: Callable[[penstock.Stream], penstock.Stream]) -> penstock.Dataflow:
    flow = penstock.Dataflow("checked")
    files = penstock.files("no/such/folder/*.json", schema="at timestamp, k bigint")
    declare(flow.source("rows", files, watermark=("at", "1 second"))).sink("out", penstock.memory())
    return flow


LOCK = threading.Lock()


def mean(values: pd.Series) -> float:
    return float(values.mean())


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda rows: rows.stateless("typo", lambda df: df.select("kk")),
            rf"operator 'typo': .*`kk`.* \({__file__}, line \d+\)$",
        ),
        (
            lambda rows: rows.stateless("action", lambda df: df.limit(df.count())),
            r"operator 'action': .*remove actions such as count\(\)",
        ),
        (
            lambda rows: rows.stateless("same", lambda df: df).keyed(
                "hour", lambda df: df.groupBy(F.hour("at").alias("h")).count(), keys=["h"]
            ),
            "operator 'hour' is keyed by 'h', .*; the columns are at, k; compute it in a stateless operator before",
        ),
        (
            lambda rows: rows.stateless("same", lambda df: df.drop("at")).watermark("k", "1 second"),
            r"column 'k' of type bigint, but it needs a timestamp; convert it .*F\.timestamp_millis",
        ),
        (
            lambda rows: rows.keyed("count", lambda df: df.groupBy("k").count(), keys=["k"]),
            r"Spark refuses 'count' with output_mode='append': .*its input has event time in at: group by it or by "
            r"F\.window of it.*output_mode='update'",
        ),
        (
            lambda rows: rows.keyed("small", start_of_windows, keys=["k"]).keyed("large", windows, keys=["k"]),
            r"Spark refuses 'large' .*its input has no event time: declare a watermark .*or use output_mode='update'",
        ),
        (
            lambda rows: rows.stateless("again", lambda df: df.withWatermark("at", "2 seconds")),
            "the output of 'again' has two watermarks on one path, and Spark allows one in a query; remove one",
        ),
        (
            lambda rows: rows.stateless("some", lambda df: df.sample(0.5)).stateless("same", lambda df: df),
            r"Spark refuses 'some' .*: Sampling is not supported on [^;]*; filter by a hash of a column, as [^;]*$",
        ),
        (
            lambda rows: rows.stateless("same", lambda df: df).keyed(
                "kinds", lambda df: df.groupBy("k").pivot("k", [1, 2]).count(), keys=["k"], output_mode="complete"
            ),
            r"Spark refuses 'kinds' with output_mode='complete': pivot aggregates twice; use one conditional aggregate",
        ),
        (
            lambda rows: rows.stateless(
                "tops", lambda df: df.groupBy("k").applyInPandas(lambda pdf: pdf[:1], df.schema)
            ),
            "the function of 'tops' calls applyInPandas on a stream, .* depends on the sizes of batches; use groupBy",
        ),
        (
            lambda rows: rows.stateless("same", lambda df: df).keyed(
                "means", lambda df: df.groupBy("k").agg(F.pandas_udf("double")(mean)("k").alias("m")), keys=["k"]
            ),
            "the function of 'means' aggregates with a Python function, which Spark cannot do in a stream; use func",
        ),
        (
            lambda rows: rows.rows("locked", lambda row: (LOCK, row)[1], schema="k bigint"),
            "^the function of operator 'locked' uses an object that cannot be sent to Python workers: .*lock.*; create",
        ),
        (
            lambda rows: rows.stateless("locked", lambda df: df.select(F.udf("long")(lambda k: (LOCK, k)[1])("k"))),
            "the function of operator 'locked' uses an object that cannot be sent to Python workers: .*lock.*; create",
        ),
        (
            lambda rows: rows.stateless("months", lambda df: df.select("k", F.expr("interval 3 month").alias("m"))),
            r"sink 'out' receives column 'm' of type interval month, which PyArrow cannot read; convert it before",
        ),
        (
            lambda rows: rows.stateless("twice", lambda df: df.select("k", F.col("at").alias("k"))),
            "sink 'out' receives two columns named 'k', .*; rename one of them before the sink",
        ),
        (
            lambda rows: rows.stateless("twice", lambda df: df.select("k", F.col("at").alias("k"))).rows(
                "each", dict, schema="k bigint"
            ),
            "operator 'each' receives two columns named 'k', and a row is a dict; rename one of them before it",
        ),
    ],
    ids=[
        "column",
        "action",
        "computed_key",
        "number_as_time",
        "no_window",
        "computed_time",
        "two_watermarks",
        "sample",
        "pivot",
        "groups_of_a_batch",
        "python_aggregate",
        "unserialisable_row_function",
        "unserialisable_udf",
        "interval_of_months",
        "repeated_column_at_a_sink",
        "repeated_column_of_rows",
    ],
)
def test_a_dataflow_that_spark_refuses_is_refused(
    spark: SparkSession, declare: Callable[[penstock.Stream], penstock.Stream], message: str
) -> None:
    with pytest.raises(penstock.PenstockError, match=message):
        penstock.check(flow_of(declare), spark=spark)
    assert not spark.streams.active


@pytest.mark.parametrize(
    "declare",
    [
        lambda rows: rows.keyed("small", windows, keys=["k"]).keyed("large", lambda df: df.groupBy("window").count(), keys=["window"]),
        lambda rows: rows.keyed("small", start_of_windows, keys=["k"]).watermark("at", "9 seconds").keyed("large", windows, keys=["k"]),
        # The watermark behind the cut replaces that of the channel: Spark allows one on a path.
        lambda rows: rows.keyed("small", lambda df: df.dropDuplicates(["k", "at"]), keys=["k"])
        .stateless("later", lambda df: df.selectExpr("at + interval 1 day as at", "k"))
        .watermark("at", "9 seconds")
        .keyed("large", windows, keys=["k"]),
    ],
    ids=["window_column", "declared_again", "declared_behind_a_stateless_operator"],
)  # fmt: skip
def test_event_time_behind_a_state_is_accepted_with_and_without_cuts(
    spark: SparkSession, declare: Callable[[penstock.Stream], penstock.Stream]
) -> None:
    flow = flow_of(declare)
    plan = penstock.default_plan(flow)
    everywhere = frozenset(operator.name for operator in flow.operators if operator.name != "out")
    for cuts in (plan.cuts, everywhere):
        penstock.check(flow, plan.replace(cuts=cuts), spark=spark)
    assert not spark.streams.active


@pytest.mark.parametrize("keeps_both", [True, False])
def test_a_state_behind_a_join_receives_one_event_time(spark: SparkSession, keeps_both: bool) -> None:
    """Spark itself refuses two when the first batch runs."""
    flow = penstock.Dataflow("joined")
    schema = "at timestamp, k bigint"
    both = [
        flow.source(name, penstock.generate(int, schema=schema, rows=1), watermark=("at", "1 second"))
        for name in ("left", "right")
    ]

    def joined(left: DataFrame, right: DataFrame) -> DataFrame:
        near = F.expr("l.k = r.k and r.at between l.at and l.at + interval 9 seconds")
        right_time = F.col("r.at").alias("then") if keeps_both else F.col("r.at").alias("then", metadata={})
        return left.alias("l").join(right.alias("r"), near).select("l.k", "l.at", right_time)

    pairs = flow.keyed("join", joined, keys=["k"], inputs=both)
    first = pairs.keyed("first", lambda df: df.dropDuplicatesWithinWatermark(["k"]), keys=["k"])
    first.sink("out", penstock.memory())
    if keeps_both:
        with pytest.raises(penstock.DataflowError, match=r"'first' receives two columns with event time \(at, then\)"):
            penstock.check(flow, spark=spark)
    else:
        penstock.check(flow, spark=spark)


def test_states_that_spark_refuses_in_one_query_are_separated_by_default(spark: SparkSession) -> None:
    """The default plan is tried with a query for each state then, which shows that 'large' has no event time."""
    flow = flow_of(lambda rows: rows.keyed("small", start_of_windows, keys=["k"]).keyed("large", windows, keys=["k"]))
    together = penstock.default_plan(flow)
    assert together.cuts == frozenset()
    with pytest.raises(penstock.PlanError, match=r"Spark refuses 'small, large' in one query: .*add \"small\" to"):
        penstock.check(flow, together, spark=spark)
    with pytest.raises(penstock.PlanError, match=r"Spark refuses 'large' .*its input has no event time"):
        penstock.check(flow, spark=spark)
