"""Overhead of all measurements on an operator that takes 5 us per row."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import penstock
from benchmarks.cpu_time import cpu_s
from benchmarks.figures import Row, row
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import SAMPLE_EVERY, EngineSettings

TURNS = 10
WARM, BATCHES = 5, 10  # batches before and during each measurement


def busy(loops: int) -> Callable[[dict[str, int]], dict[str, int]]:
    def work(row: dict[str, int]) -> dict[str, int]:
        total = 0
        for number in range(loops):
            total += number
        return row

    return work


def cost_us(fn: Callable[[dict[str, int]], dict[str, int]]) -> float:
    """Return the shortest time of several runs, because other processes only add time."""
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        for _ in range(10_000):
            fn({})
        best = min(best, (time.perf_counter() - began) / 10_000 * 1e6)
    return best


class Cost(NamedTuple):
    rows_per_s: float
    cpu_us: float  # per row, of all processes


def overhead(master: str) -> list[Row]:
    flow = penstock.Dataflow("busy")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10**9, rows_per_s=10**7))
    work = busy(round(100 * 5.0 / cost_us(busy(100))))
    numbers.rows("work", work, schema="n bigint").sink("out", penstock.noop())
    spark = session(master)
    pairs: list[dict[bool, Cost]] = []
    for turn in range(TURNS + 1):
        pair = {measured: big_batches(spark, flow, measured) for measured in (turn % 2 == 0, turn % 2 == 1)}
        pairs += [pair] if turn else []  # the first turn warms up the JVM and is not counted
    spark.stop()
    # The bar applies to CPU time: other work on the machine changes the elapsed time by more than the overhead. Such
    # work can only add CPU time (caches, clock frequency), so the lower quartiles of both sides are compared.
    measured, plain = ([pair[side].cpu_us for pair in pairs] for side in (True, False))
    share = _lower_quartile(measured) / _lower_quartile(plain) - 1
    low, median, high = statistics.quantiles((more / less - 1 for more, less in zip(measured, plain, strict=True)), n=4)
    slower = [1 - pair[True].rows_per_s / pair[False].rows_per_s for pair in pairs]
    return [
        row("cost of the operator", cost_us(work), "us/row"),
        row("throughput without measurement", statistics.median(pair[False].rows_per_s for pair in pairs), "rows/s"),
        row("CPU time without measurement", _lower_quartile(plain), "us/row"),
        row("overhead of all measurements, CPU time", 100 * share, "%", "<= 3", share <= 0.03),
        row(f"  ratios of {len(pairs)} pairs: lower quartile", 100 * low, "%"),
        row("  median", 100 * median, "%"),
        row("  upper quartile", 100 * high, "%"),
        row("overhead of all measurements, elapsed time", 100 * statistics.median(slower), "%"),
    ]


def _lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def big_batches(spark: SparkSession, flow: Dataflow, measured: bool) -> Cost:
    """Return the cost in batches of 200,000 rows, in which the cost per batch is negligible, observed like a run."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        sample_every = SAMPLE_EVERY if measured else None
        settings = EngineSettings(max_batch_rows=200_000, batch_s=60.0, sample_every=sample_every)
        engine = SparkEngine(flow, at, spark=spark, settings=settings)
        engine.start()
        try:
            (name,) = engine.queries
            query = engine.running(name)
            until_batch(engine, query, WARM, measured)
            began_s, began_cpu_s = time.perf_counter(), cpu_s()
            until_batch(engine, query, WARM + BATCHES, measured)
            took_s, took_cpu_s = time.perf_counter() - began_s, cpu_s() - began_cpu_s
            rows = sum(progress["numInputRows"] for progress in query.recentProgress[WARM + 1 : WARM + BATCHES + 1])
            return Cost(rows / took_s, 1e6 * took_cpu_s / rows)
        finally:
            engine.stop()


def until_batch(engine: SparkEngine, query: StreamingQuery, number: int, measured: bool) -> None:
    observed_s = time.monotonic()
    while (query.lastProgress or {}).get("batchId", -1) < number:
        time.sleep(0.05)
        if measured and time.monotonic() > observed_s + 2.0:  # one window of a run
            engine.observe()
            observed_s = time.monotonic()
