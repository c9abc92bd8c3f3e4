"""What all measurement costs on an operator of 5 us a row."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

import penstock as ps
from benchmarks.figures import Row, row
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session


def busy(loops: int) -> Callable[[dict[str, int]], dict[str, int]]:
    def work(row: dict[str, int]) -> dict[str, int]:
        total = 0
        for number in range(loops):
            total += number
        return row

    return work


def cost_us(fn: Callable[[dict[str, int]], dict[str, int]]) -> float:
    """The best of a few: what it takes when nothing disturbs it."""
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        for _ in range(10_000):
            fn({})
        best = min(best, (time.perf_counter() - began) / 10_000 * 1e6)
    return best


def overhead(master: str) -> list[Row]:
    flow = ps.Dataflow("busy")
    numbers = flow.source("numbers", ps.generate(lambda n: n, schema="n bigint", rows=10**9, rows_per_s=10**7))
    work = busy(round(100 * 5.0 / cost_us(busy(100))))
    numbers.rows("work", work, "n bigint").sink("out", ps.noop())
    spark = session(master)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(8):
        for measured in (turn % 2 == 0, turn % 2 == 1):
            found = big_batches(spark, flow, measured)
            rates[measured] += found if turn else []  # the JVM warms up on neither side's account
    spark.stop()
    # Of the faster batches: what disturbs the machine makes batches slower, never faster.
    share = 1 - statistics.quantiles(rates[True], n=4)[2] / statistics.quantiles(rates[False], n=4)[2]
    return [
        row("the operator measured", cost_us(work), "us/row"),
        row("rows/s not measured", statistics.median(rates[False]), "rows/s"),
        row("overhead of all measurement", 100 * share, "%", "<= 3", share <= 0.03),
    ]


def big_batches(spark: SparkSession, flow: Dataflow, measured: bool) -> list[float]:
    """Batches of 200,000 rows, so that it is rows that cost and not batches; observed as a run would be."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, most_rows_a_batch=200_000, batch_s=60.0, measured=measured)
        engine.start()
        try:
            (query,) = engine.queries
            while (engine.running(query).lastProgress or {}).get("batchId", 0) < 14:
                time.sleep(2.0)  # a window, where nothing else is asked for
                if measured:
                    engine.observe()
            batches = engine.running(query).recentProgress[7:14]
            return [one["numInputRows"] / (one["batchDuration"] / 1000) for one in batches]
        finally:
            engine.stop()
