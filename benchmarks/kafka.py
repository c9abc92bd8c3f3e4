"""Measure the cost of Kafka as ratios within one run on one broker.

Run it with `python -m benchmarks.kafka [--json] [--only PART]`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from benchmarks.figures import Row, print_all, row
from benchmarks.spark.cuts import arrow_hop, hop, median_latency_s, two_steps
from penstock.apps import wordcount
from penstock.brokers.broker import Broker
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.load_generator import Backlog, load
from penstock.brokers.maven_jars import connector_jars
from penstock.brokers.topics import Topic
from penstock.engines.spark.channels import KafkaChannel
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import save_start_offsets
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.session import session
from penstock.plan import default_plan

LINES = 1_200_000
LARGE = 200_000  # rows per batch: higher throughput and higher latency
SMALL = b"a row of a stream, as small as rows often are"


def cuts(cluster: KafkaCluster) -> list[Row]:
    """Compare the embedded channel and the Kafka channel."""
    spark = session("local[2]")
    flow = two_steps()
    base = default_plan(flow, slots=2)
    cut = base.replace(cuts=frozenset({"one"}))
    uncut_s = median_latency_s(spark, flow, base)
    rows = [
        row("median latency without a cut", uncut_s, "s"),
        row("added by a cut: embedded", median_latency_s(spark, flow, cut) - uncut_s, "s"),
        row("added by a cut: Kafka", median_latency_s(spark, flow, cut, kafka=cluster) - uncut_s, "s"),
    ]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        at = Path(folder)
        (at / PLAN_FILE).write_text('{"generation": 1}')
        save_start_offsets(at, "reader", {"hop": {"entry": 0}})
        schema = spark.range(1).selectExpr("id as n").schema.json()
        options = ReaderOptions(name="hop", replicas=2, query="reader", opens_at=1, run=at, batch_s=2.0, max_rows=None)
        channel = KafkaChannel.create(at / "channels" / "hop", schema, None, cluster=cluster)
        theirs = hop(
            lambda df, key: channel.append(df, key),
            lambda: channel.read(spark, options),
            spark,
            at,
        )
    for name, (latency, rows_per_s) in (("embedded", arrow_hop(spark)), ("Kafka", theirs)):
        rows += [
            row(f"one hop: {name}: median", latency, "s"),
            row(f"one hop: {name}: throughput at 200k-row appends", rows_per_s, "rows/s"),
        ]
    spark.stop()
    return rows


def loading(cluster: KafkaCluster) -> list[Row]:
    """Compare the load generator with the Kafka client alone."""
    from confluent_kafka import Producer

    Topic(cluster, "small").create(4)
    rows = 1_000_000
    loaded = load(Topic(cluster, "small"), lambda n: SMALL, Backlog(rows))
    client = Producer(cluster.config(**{"linger.ms": 10, "batch.size": 1 << 20, "queue.buffering.max.messages": rows}))
    began = time.monotonic()
    for _ in range(rows // 5_000):
        while len(client) > 200_000:
            client.poll(0.01)
        client.produce_batch("small", [{"value": SMALL} for _ in range(5_000)])
    client.flush()
    alone = rows / (time.monotonic() - began)
    bar = min(200_000.0, alone)
    return [
        row("Kafka client alone", alone, "rows/s"),
        row("load generator", loaded.rows_per_s, "rows/s", f">= {bar:,.0f}", loaded.rows_per_s >= bar),
    ]


def word_count(cluster: KafkaCluster) -> list[Row]:
    """Compare Penstock with a hand-written query through Spark's Kafka connector, on preloaded topics."""
    jars = connector_jars()
    print(f"hand-written: {jars[-2].name}", file=sys.stderr)
    for topic in ("lines", "counts", "counts-by-hand"):
        Topic(cluster, topic).create(2)
    load(Topic(cluster, "lines"), wordcount.generator, Backlog(LINES))
    spark = session("local[2]", confs={"spark.jars": ",".join(str(path) for path in jars)})
    with_penstock(spark, cluster)  # warm-up of the JVM, not measured
    ours, size = with_penstock(spark, cluster)
    theirs, large = by_hand(spark, cluster, size), by_hand(spark, cluster, LARGE)
    ratio = ours / theirs
    spark.stop()
    title = "word count from topic to topic"
    return [
        row(f"{title}: Penstock, {size:,} rows per batch", ours, "rows/s"),
        row(f"{title}: hand-written, {size:,} rows per batch", theirs, "rows/s"),
        row(f"{title}: hand-written, {LARGE:,} rows per batch", large, "rows/s"),
        row("Penstock / hand-written, same batch size", ratio, "ratio", ">= 0.9", ratio >= 0.9),
    ]


def with_penstock(spark: SparkSession, cluster: KafkaCluster) -> tuple[float, int]:
    """Return rows per second and the mean batch size of a row. Penstock chooses the size by the duration of batches."""
    flow = penstock.Dataflow("wordcount")
    words = flow.source("lines", penstock.kafka("lines", bootstrap_servers=cluster.bootstrap_servers)).stateless(
        "split", wordcount.split
    )
    words.keyed("count", wordcount.count, keys=["word"]).sink(
        "out", penstock.kafka("counts", bootstrap_servers=cluster.bootstrap_servers, format="json", key="word")
    )
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=default_plan(flow, slots=2, replicas={"count": 2}))
        engine.start()
        try:
            (query,) = engine.queries
            rate = timed(lambda: engine.position(query, query.input("lines")), engine.failure)
            sizes = [
                progress["numInputRows"]
                for progress in engine.running(query).recentProgress
                if progress["numInputRows"]
            ]
            return rate, round(sum(rows**2 for rows in sizes) / sum(sizes))
        finally:
            engine.stop()


def timed(position: Callable[[], dict[str, int]], failure: Callable[[], str | None]) -> float:
    """Return the rows per second after the first tenth of the lines, which warms up the workers."""
    begun: tuple[float, int] | None = None
    while True:
        rows = sum(position().values())
        if begun is None and rows >= LINES // 10:
            begun = (time.monotonic(), rows)
        if rows >= LINES and begun is not None:
            return (rows - begun[1]) / max(time.monotonic() - begun[0], 1e-3)
        if (why := failure()) is not None:
            raise SystemExit(why)
        time.sleep(0.02)


def by_hand(spark: SparkSession, cluster: KafkaCluster, rows_a_batch: int) -> float:
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    read = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", "lines")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_a_batch)
        .load()
    )
    counted = wordcount.count(wordcount.split(read.select(F.col("value").cast("string"))))
    records = counted.select(F.col("word").alias("key"), F.to_json(F.struct("word", "count")).alias("value"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        query = (
            records.writeStream.format("kafka")
            .outputMode("update")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("topic", "counts-by-hand")
            .option("checkpointLocation", at)
            .start()
        )

        def position() -> dict[str, int]:
            last = query.lastProgress
            return json.loads(last["sources"][0]["endOffset"])["lines"] if last else {}

        try:
            return timed(position, lambda: str(query.exception()) if query.exception() else None)
        finally:
            query.stop()


PARTS = {"load": loading, "word-count": word_count, "cuts": cuts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at, Broker(Path(at)) as broker:
        print_all(PARTS, given.only, KafkaCluster(bootstrap_servers=broker.bootstrap_servers), as_json=given.json)


if __name__ == "__main__":
    main()
