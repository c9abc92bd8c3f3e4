"""Throughput of an operator that waits 5 ms per row, with 1, 4, 16 and 64 threads in one task on one slot.

`make bench-threads` prints the rows/s and the ratio to one thread. The bar: 16 threads reach 12 times one thread.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from pyspark.sql import SparkSession

from penstock.dataflow.concurrent_calls import ConcurrentCalls
from penstock.dataflow.operators import RowFunction
from penstock.engines.spark.compile.row_functions import apply_row_function
from penstock.engines.spark.session import session

WAIT_S = 0.005
SECONDS = 6.0  # the expected time of each measurement
BAR = 12.0


def wait(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return row


async def wait_async(row: dict[str, Any]) -> dict[str, Any]:
    import asyncio

    await asyncio.sleep(WAIT_S)
    return row


def rows_per_s(spark: SparkSession, function: Any, threads: int) -> float:
    """Return the throughput of one task; the start of its Python worker is not part of it."""
    rows = round(SECONDS * threads / WAIT_S)
    calls = RowFunction(fn=function, schema="id bigint", calls=ConcurrentCalls(threads=threads))
    for count in (threads, rows):  # the first one starts the worker
        frame = apply_row_function(spark.range(0, count, 1, 1), "wait", calls)
        began = time.perf_counter()
        assert frame.count() == count
    return rows / (time.perf_counter() - began)


def main() -> int:
    spark = session("local[1]")
    ratios = {}
    for name, function in (("threads", wait), ("coroutines", wait_async)):
        single = rows_per_s(spark, function, 1)
        for threads in (1, 4, 16, 64):
            rate = single if threads == 1 else rows_per_s(spark, function, threads)
            ratios[name, threads] = rate / single
            print(f"{threads:>3} {name}: {rate:8.0f} rows/s, {rate / single:6.2f} x one", flush=True)
    spark.stop()
    reached = min(ratios["threads", 16], ratios["coroutines", 16])
    print(f"16 at once reach {reached:.2f} x one (bar: {BAR:g})")
    return 0 if reached >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
