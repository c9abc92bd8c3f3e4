"""Throughput of the sum barrier: the operator class, and the same operator written by hand with transformWithState.

Both sides run in the same engine, read the same sources, and differ in the operator only. The hand-written version
relies on the order of Spark's shuffle, which is not defined; the operator class keeps the order of the streams.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from benchmarks.figures import Row as Figure
from benchmarks.figures import row as figure
from benchmarks.spark.throughput import Rates, rates, upper_quartile
from penstock.apps.joker.sum_barrier import BATCH, SumBarrier
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings

ROWS = 5_000  # of each source in a batch
WARM, MEASURED, TURNS = 3, 7, 3
KEYS = (100, 5_000)  # with 50 rows, and with 1 row, of a key at each port in a batch
OUTPUT = "key bigint, batch_sum bigint, total bigint"


class HandWritten(StatefulProcessor):
    """The sum barrier, with a list state for each port and a value state for the total."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.lists = [handle.getListState(name, "num bigint") for name in ("left", "right")]
        self.total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        arrived: tuple[list[int], list[int]] = ([], [])
        for row in rows:
            arrived[row.port].append(row.num)
        stored = [[value[0] for value in state.get()] for state in self.lists]
        left, right = (old + new for old, new in zip(stored, arrived, strict=True))
        calls = min(len(left), len(right)) // BATCH
        output = []
        if calls:
            value = self.total.get()
            total = 0 if value is None else value[0]
            for start in range(0, calls * BATCH, BATCH):
                pairs = zip(left[start : start + BATCH], right[start : start + BATCH], strict=True)
                batch_sum = sum(max(pair) for pair in pairs)
                total += batch_sum
                output.append(Row(key=key[0], batch_sum=batch_sum, total=total))
            self.total.update((total,))
        for state, old, new, waiting in zip(self.lists, stored, arrived, (left, right), strict=True):
            rest = waiting[calls * BATCH :]
            if calls and rest:
                state.put([(number,) for number in rest])
            elif calls and old:
                state.clear()
            elif new and not calls:
                state.appendList([(number,) for number in new])
        return iter(output)

    def close(self) -> None:
        pass


def by_hand(left: DataFrame, right: DataFrame) -> DataFrame:
    ports = [df.select("key", "num", F.lit(port).alias("port")) for port, df in enumerate((left, right))]
    return ports[0].union(ports[1]).groupBy("key").transformWithState(HandWritten(), OUTPUT, "Append", "None")


def flow(keys: int, is_class: bool) -> Dataflow:
    def numbers(n: np.ndarray) -> dict[str, np.ndarray]:
        return {"key": n * 7919 % keys, "num": n * 104_729 % 1_000}

    dataflow = penstock.Dataflow("barrier")
    source = penstock.generate(numbers, schema="key bigint, num bigint", rows=10**9, rows_per_s=10**7, vectorised=True)
    inputs = [dataflow.source(name, source) for name in ("left", "right")]
    if is_class:
        sums = dataflow.operator("sums", SumBarrier(), inputs=inputs, keys=["key"], rows=BATCH)
    else:
        sums = dataflow.keyed("sums", by_hand, keys=["key"], inputs=inputs, output_mode="append")
    sums.sink("out", penstock.noop())
    return dataflow


def measured(spark: SparkSession, keys: int, is_class: bool) -> Rates:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow(keys, is_class), at, spark=spark, settings=EngineSettings(max_batch_rows=ROWS))
        engine.start()
        try:
            (query,) = engine.queries
            return rates(lambda: engine.running(query), WARM, MEASURED, timeout_s=90.0)
        finally:
            engine.stop()


def barrier(master: str) -> list[Figure]:
    spark = session(master)
    figures: list[Figure] = []
    for keys in KEYS:
        sides: dict[bool, list[Rates]] = {True: [], False: []}
        for turn in range(TURNS):  # both sides alternate, so that changes of the machine's speed affect both
            for is_class in (turn % 2 == 0, turn % 2 == 1):
                sides[is_class].append(measured(spark, keys, is_class))
        own, hand = (upper_quartile([rate for turn in sides[side] for rate in turn]) for side in (True, False))
        turns = zip(sides[True], sides[False], strict=True)
        median = statistics.median(statistics.median(ours) / statistics.median(theirs) for ours, theirs in turns)
        figures += [
            figure(f"sum barrier, {keys:,} keys: operator class", own, "rows/s"),
            figure(f"sum barrier, {keys:,} keys: transformWithState by hand", hand, "rows/s"),
            figure("operator class / by hand", own / hand, "ratio", ">= 0.9", own / hand >= 0.9),
            figure("  median ratio of the turns", median, "ratio"),
        ]
    spark.stop()
    return figures
