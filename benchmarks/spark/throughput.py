"""Throughput of word count: Penstock compared with the same hand-written query, in saturated batches of 2,000 rows."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks.figures import Row, row
from penstock.apps import wordcount
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import save_start_offsets
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sources.factory import create_source

BATCH = 2_000
WARM, MEASURED = 8, 25  # batches


Rates = list[float]


def rates(query: Callable[[], Any], warm: int = WARM, measured: int = MEASURED, timeout_s: float = 120.0) -> Rates:
    """Return the rows per second of each batch after the warm-up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        last = query().lastProgress  # each call costs the driver time, so calls are rare
        if last and last["batchId"] >= warm + measured:
            break
        time.sleep(0.5)
    batches = query().recentProgress[warm : warm + measured]
    return [progress["numInputRows"] / progress["durationMs"]["triggerExecution"] * 1000 for progress in batches]


def upper_quartile(batch_rates: Rates) -> float:
    """Return the rate of the faster batches, because other processes only make batches slower."""
    return statistics.quantiles(batch_rates, n=4)[2]


def penstock_rates(spark: SparkSession, flow: Dataflow) -> Rates:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, settings=EngineSettings(max_batch_rows=BATCH))
        engine.start()
        try:
            (query,) = engine.queries
            engine.observe()
            return rates(lambda: engine.running(query))
        finally:
            engine.stop()


def hand_written_rates(spark: SparkSession, named: bool, warm: int = WARM, measured: int = MEASURED) -> Rates:
    """Return the rates of a plain query with the same source, the same operators and Spark's noop sink."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        at = Path(folder)
        flow = wordcount.flow(output=penstock.noop(), rows=10**9, rows_per_s=10**7)
        source = create_source(flow["lines"], at / "sources")
        source.start_clock()
        (at / PLAN_FILE).write_text('{"generation": 1}')
        save_start_offsets(at, "hand", {"lines": {"row": 0}})
        options = ReaderOptions(name="lines", replicas=2, query="hand", opens_at=1, run=at, batch_s=2.0, max_rows=BATCH)
        lines = source.read(spark, options) if named else _unnamed(spark, source, options)
        counts = wordcount.count(wordcount.split(lines))
        query = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", f"{at}/c").start()
        try:
            return rates(lambda: query, warm, measured)
        finally:
            query.stop()


def _unnamed(spark: SparkSession, source: Any, options: ReaderOptions) -> DataFrame:
    """Read the source without a name, which would need a property that Penstock sets."""
    reader = source.source_class()
    spark.dataSource.register(reader)
    return spark.readStream.format(reader.name()).options(**options.to_spark()).load()


def word_count(master: str) -> list[Row]:
    flow = wordcount.flow(output=penstock.noop(), rows=10**9, rows_per_s=10**7)
    spark = session(master)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    ours: list[Rates] = []
    theirs: list[Rates] = []
    sides = [
        lambda: (theirs, hand_written_rates(spark, named=True)),
        lambda: (ours, penstock_rates(spark, flow)),
    ]
    for turn in range(9):  # both sides alternate, so that changes of the machine's speed affect both
        for side in sides if turn % 2 == 0 else sides[::-1]:
            kept, batch_rates = side()
            kept += [batch_rates] if turn else []  # the first turn warms up the JVM and is not counted
    spark.stop()
    # A JVM keeps its initial configuration, so Spark's defaults need a new process.
    words = [sys.executable, "-m", "benchmarks.spark", "--default-confs", "--master", master]
    default = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1])
    own, other = (upper_quartile([rate for turn in turns for rate in turn]) for turns in (ours, theirs))
    same, plain = own / other, own / default
    pairs = [
        statistics.median(our_turn) / statistics.median(their_turn)
        for our_turn, their_turn in zip(ours, theirs, strict=True)
    ]
    return [
        row("word count, Penstock", own, "rows/s"),
        row("word count, hand-written, same confs", other, "rows/s"),
        row("word count, hand-written, Spark's default confs", default, "rows/s"),
        row("Penstock / hand-written, same confs", same, "ratio", ">= 0.95", same >= 0.95),
        row("  median ratio of the turns, with slow batches", statistics.median(pairs), "ratio"),
        row("Penstock / hand-written, default confs", plain, "ratio", ">= 1.5", plain >= 1.5),
    ]


def default_confs(master: str) -> float:
    """Return the rate with Spark's defaults. Their 200 state partitions make batches slow, so fewer are measured."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        return upper_quartile(hand_written_rates(spark, named=False, warm=3, measured=6))
    finally:
        spark.stop()
