"""Cost of a cut, with the implemented channel and with the alternative of Parquet files."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from benchmarks.figures import Row, row
from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import save_start_offsets
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.plan import default_plan


def two_steps() -> Dataflow:
    """Return a dataflow of two operators; a cut is possible between them."""
    flow = penstock.Dataflow("cut")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10**9, rows_per_s=2_000))
    first = numbers.stateless("one", lambda df: df.selectExpr("n + 1 as n"))
    first.stateless("two", lambda df: df.selectExpr("n * 2 as n")).sink("out", penstock.noop())
    return flow


def cuts(master: str) -> list[Row]:
    """Compare one query with two queries and a channel, and the channel with Parquet and Spark's file source."""
    spark = session(master)
    flow = two_steps()
    base = default_plan(flow, slots=2)
    rows: list[Row] = []
    uncut = median_latency_s(spark, flow, base)
    cut = median_latency_s(spark, flow, base.replace(cuts=frozenset({"one"})))
    rows += [
        row("median latency without a cut", uncut, "s"),
        row("added by a cut: Arrow files, Python source (chosen)", cut - uncut, "s"),
    ]
    for name, measure_hop in (
        ("Arrow files, Python source (chosen)", arrow_hop),
        ("Parquet, Spark's file source", parquet_hop),
    ):
        latency, rows_per_s = measure_hop(spark)
        rows += [
            row(f"one hop: {name}: median", latency, "s"),
            row(f"one hop: {name}: throughput at 200k-row appends", rows_per_s, "rows/s"),
        ]
    spark.stop()
    return rows


def median_latency_s(
    spark: SparkSession, flow: Dataflow, plan: penstock.Plan, *, kafka: KafkaCluster | None = None
) -> float:
    """Return the median latency of the dataflow under a plan; `kafka` holds the rows of its cuts."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=plan, settings=EngineSettings(kafka=kafka))
        engine.start()
        try:
            medians: list[float] = []
            while len(medians) < 12:
                time.sleep(1.0)
                latency = engine.observe().latency
                medians += [latency.p50_s] if latency else []
            return statistics.median(medians[4:])
        finally:
            engine.stop()


def hop(
    append: Callable[[DataFrame, str], Any], read: Callable[[], DataFrame], spark: SparkSession, at: Path
) -> tuple[float, float]:
    """Return the median latency of small appends and the rows per second of large appends.

    The latency lasts from the start of an append to the end of the reader's batch with these rows.
    """
    append(spark.range(10).selectExpr("id as n"), "q.00000000")
    done: dict[str, float] = {}

    def finish(df: DataFrame, number: int) -> None:
        rows = df.agg(F.count("*"), F.max("n")).first()
        if rows[0]:
            done[str(rows[1])] = time.monotonic()

    query = read().writeStream.foreachBatch(finish).option("checkpointLocation", str(at / "c")).start()
    latencies = []
    for number in range(1, 21):
        mark = 10**9 + number
        began = time.monotonic()
        append(spark.range(mark - 1_999, mark + 1, numPartitions=2).selectExpr("id as n"), f"q.{number:08d}")
        while str(mark) not in done:
            time.sleep(0.002)
        latencies.append(done[str(mark)] - began)
    began = time.monotonic()
    for number in range(21, 27):
        mark = 2 * 10**9 + 10**6 * number
        append(spark.range(mark - 199_999, mark + 1, numPartitions=2).selectExpr("id as n"), f"q.{number:08d}")
    while str(mark) not in done:
        time.sleep(0.002)
    rows_per_s = 6 * 200_000 / (time.monotonic() - began)
    query.stop()
    return statistics.median(latencies[5:]), rows_per_s


def arrow_hop(spark: SparkSession) -> tuple[float, float]:
    from penstock.engines.spark.channels import EmbeddedChannel

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        at = Path(folder)
        (at / PLAN_FILE).write_text('{"generation": 1}')
        save_start_offsets(at, "reader", {"hop": {"entry": 0}})
        schema = spark.range(1).selectExpr("id as n").schema.json()
        options = ReaderOptions(name="hop", replicas=2, query="reader", opens_at=1, run=at, batch_s=2.0, max_rows=None)
        channel = EmbeddedChannel.create(at / "channels" / "hop", schema, None)
        return hop(
            lambda df, key: channel.append(df, key),
            lambda: channel.read(spark, options),
            spark,
            at,
        )


def parquet_hop(spark: SparkSession) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        at = Path(folder)
        (at / "in").mkdir()

        def append(df: DataFrame, key: str) -> None:
            df.write.parquet(str(at / "aside" / key))
            (at / "aside" / key).rename(at / "in" / key)

        def read() -> DataFrame:
            return (
                spark.readStream.schema("n bigint")
                .format("parquet")
                .name("hop")
                .load(str(at / "in" / "*"))
                .repartition(2)
            )

        return hop(append, read, spark, at)
