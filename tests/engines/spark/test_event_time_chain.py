"""Event time behind a join and behind a window column: the results equal those of a batch query over the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.dataflow import Kind
from penstock.engines.spark.engine import SparkEngine
from tests.support.spark_runs import FLUSH_ROWS_PER_S, engine_for, plan_of, play, rows_read, wait_until

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 500
FLUSH = timedelta(days=1)  # how far the last row is ahead: it closes all windows but its own


def moment(n: int, disorder_s: int) -> datetime:
    """Times are out of order by less than the delay of the watermark, so that no row is late."""
    return START + timedelta(seconds=n + 7 * n % disorder_s) + (FLUSH if n == ROWS - 1 else timedelta())


def order(n: int) -> tuple[int, datetime]:
    """Spark may filter rows before it sees their times, so the key of the last row passes all filters."""
    return (n + 1) % 5, moment(n, 8)


def payment(n: int) -> tuple[int, datetime]:
    return (n + 1) % 5, moment(n, 5)


def joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """The older column goes on: a match is up to 60 seconds older than the watermark of both inputs."""
    soon = F.expr("o.k = p.k and paid between ordered and ordered + interval 60 seconds")
    return orders.alias("o").join(payments.alias("p"), soon).select("o.k", "ordered", "paid")


def per_window(df: DataFrame) -> DataFrame:
    return df.groupBy(F.window("ordered", "30 seconds"), "k").agg(F.count(F.lit(1)).alias("n"))


def bids_per_auction(df: DataFrame) -> DataFrame:
    return df.groupBy(F.window("ts", "20 seconds", "10 seconds"), "auction").agg(F.count(F.lit(1)).alias("n"))


def most_bids(df: DataFrame) -> DataFrame:
    return df.groupBy("window").agg(F.max("n").alias("n"), F.sum("n").alias("all"))


def join_then_window() -> penstock.Dataflow:
    flow = penstock.Dataflow("payments")
    orders = penstock.generate(order, schema="k int, ordered timestamp", rows=ROWS, rows_per_s=150)
    payments = penstock.generate(payment, schema="k int, paid timestamp", rows=ROWS, rows_per_s=120)
    both = [
        flow.source("orders", orders, watermark=("ordered", "10 seconds")),
        flow.source("payments", payments, watermark=("paid", "6 seconds")),
    ]
    pairs = flow.keyed("join", joined, keys=["k"], inputs=both)
    few = pairs.stateless("few", lambda df: df.where("k < 4"))
    few.keyed("count", per_window, keys=["k"]).sink("out", penstock.memory())
    return flow


def window_of_window() -> penstock.Dataflow:
    """Nexmark q5: the bids of each auction in a sliding window, then the most bids of all auctions in that window."""
    flow = penstock.Dataflow("hot")
    bids = penstock.generate(bid, schema="auction int, ts timestamp", rows=ROWS, rows_per_s=150)
    counted = flow.source("bids", bids, watermark=("ts", "10 seconds")).keyed(
        "count", bids_per_auction, keys=["auction"]
    )
    same = counted.stateless("same", lambda df: df.where("n > 0"))
    same.keyed("most", most_bids, keys=["window"]).sink("out", penstock.memory())
    return flow


def union_then_window() -> penstock.Dataflow:
    """The faster stream has to wait for the watermark of the slower one."""
    flow = penstock.Dataflow("both")
    web = penstock.generate(order, schema="k int, ts timestamp", rows=ROWS, rows_per_s=150)
    shop = penstock.generate(payment, schema="k int, ts timestamp", rows=ROWS, rows_per_s=60)
    streams = [
        flow.source("web", web, watermark=("ts", "10 seconds")),
        flow.source("shop", shop, watermark=("ts", "6 seconds")),
    ]
    both = flow.stateless("all", lambda df: df.where("k < 4"), inputs=streams)
    both.rows("same", lambda row: row, schema="k int, ts timestamp").keyed(
        "count", lambda df: per_window(df.withColumnRenamed("ts", "ordered")), keys=["k"]
    ).sink("out", penstock.memory())
    return flow


def bid(n: int) -> tuple[int, datetime]:
    return n * n % 7, moment(n, 8)


def batch(spark: SparkSession, row: Any, schema: str) -> DataFrame:
    return spark.createDataFrame([row(n) for n in range(ROWS)], schema)


def in_order(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (row["window"]["start"].timestamp(), *(row[name] for name in sorted(row) if name != "window")) for row in rows
    )


def closed(df: DataFrame) -> list[tuple[Any, ...]]:
    """The windows that the last row closes."""
    rows = df.where(F.col("window.end") < F.lit(START + FLUSH)).collect()
    return in_order(row.asDict(recursive=True) for row in rows)


@pytest.fixture
def truth(spark: SparkSession) -> dict[str, list[tuple[Any, ...]]]:
    pairs = joined(batch(spark, order, "k int, ordered timestamp"), batch(spark, payment, "k int, paid timestamp"))
    bids = batch(spark, bid, "auction int, ts timestamp")
    both = batch(spark, order, "k int, ordered timestamp").union(batch(spark, payment, "k int, ordered timestamp"))
    return {
        "both": closed(per_window(both.where("k < 4"))),
        "payments": closed(per_window(pairs.where("k < 4"))),
        "hot": closed(most_bids(bids_per_auction(bids))),
    }


def has_ended(engine: SparkEngine, name: str) -> bool:
    """Return whether all rows of a source have been read."""
    inputs = [(query, source) for query in engine.queries for source in query.inputs if source.origin == name]
    return all(engine.position(query, source) == {"row": ROWS} for query, source in inputs)


@pytest.mark.parametrize(
    ("flow", "states", "everywhere"),
    [
        (join_then_window(), ("join", "count"), {"orders", "payments", "join", "few", "count"}),
        (window_of_window(), ("count", "most"), {"bids", "count", "same", "most"}),
        (union_then_window(), ("count",), {"web", "shop", "all", "same", "count"}),
        (union_then_window(), ("count",), {"all"}),
    ],
    ids=["join_then_window", "window_of_window", "union_then_window", "cut_behind_union"],
)
def test_event_time_survives_every_cut_and_change(
    spark: SparkSession,
    tmp_path: Path,
    truth: dict[str, list[tuple[Any, ...]]],
    flow: penstock.Dataflow,
    states: tuple[str, ...],
    everywhere: set[str],
) -> None:
    def plan(first: int, second: int, cuts: set[str]) -> penstock.Plan:
        plan = penstock.default_plan(flow, slots=2, replicas=dict(zip(states, (first, second), strict=False)))
        return plan_of(flow, plan.replicas, cuts)

    sources = [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]
    engine = engine_for(flow, spark, tmp_path / "run", plan(2, 2, set()))
    try:
        engine.start()
        if len(sources) == 1:
            play(engine, [plan(3, 1, everywhere), plan(1, 2, set())])
        else:  # one stream ends between the changes: its last watermark must not get lost
            wait_until(lambda: rows_read(engine) > 0, engine)
            engine.apply(plan(3, 1, everywhere))
            engine.set_rate(sources[0], FLUSH_ROWS_PER_S)
            wait_until(lambda: has_ended(engine, sources[0]), engine)
            play(engine, [plan(1, 2, set())])
        expected = truth[flow.name]
        assert len(expected) > 50
        assert in_order(engine.rows("out")) == expected
    finally:
        engine.stop()
