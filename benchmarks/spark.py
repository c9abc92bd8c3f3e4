"""What Penstock costs on Spark, in ratios within one run: `python -m benchmarks.spark [--json] [--only PART]`.

Both sides of a ratio read the same source and do the same work; "hand-written" is what a user would write by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock.apps import wordcount
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.gate import COMMITTED, save_starts
from penstock.engines.spark.session import session
from penstock.engines.spark.sources.contract import Reading
from penstock.engines.spark.sources.live import live_source
from penstock.plan import default_plan

Row = dict[str, Any]
BATCH = 2_000
WARM, MEASURED = 8, 25  # batches


def row(name: str, value: float, unit: str, bar: str = "", ok: bool | None = None) -> Row:
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": ok}


# ---- throughput: batches of 2,000 rows, as fast as they go


def rate(query: Callable[[], Any], warm: int = WARM, measured: int = MEASURED, timeout_s: float = 120.0) -> float:
    """Rows a second of the median batch behind the warm ones: what disturbs the machine falls on few of them."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        last = query().lastProgress  # asking costs the driver time, so it is asked seldom
        if last and last["batchId"] >= warm + measured:
            break
        time.sleep(0.5)
    batches = query().recentProgress[warm : warm + measured]
    return statistics.median(one["numInputRows"] / one["durationMs"]["triggerExecution"] * 1000 for one in batches)


def penstock_rate(spark: SparkSession, flow: Dataflow, measured: bool = True, warm: int = WARM) -> float:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, most_rows_a_batch=BATCH, measured=measured)
        engine.start()
        try:
            (query,) = engine.queries
            if measured:
                engine.observe()
            return rate(lambda: engine.running(query), warm)
        finally:
            engine.stop()


def hand_written_rate(spark: SparkSession, named: bool, warm: int = WARM, measured: int = MEASURED) -> float:
    """The same source and the same query, started by hand with Spark's own noop sink."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        at = Path(folder)
        flow = wordcount.flow(output=ps.noop(), rows=10**9, rows_per_s=10**7)
        source = live_source(flow["lines"], at / "sources")
        (at / COMMITTED).write_text('{"generation": 1}')
        save_starts(at, "hand", {"lines": {"row": 0}})
        how = Reading(name="lines", replicas=2, query="hand", opens_at=1, run=at, batch_s=2.0, most_rows=BATCH)
        lines = source.read(spark, how) if named else _unnamed(spark, source, how)
        counts = wordcount.count(wordcount.split(lines))
        query = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", f"{at}/c").start()
        try:
            return rate(lambda: query, warm, measured)
        finally:
            query.stop()


def _unnamed(spark: SparkSession, source: Any, how: Reading) -> DataFrame:
    """Without Penstock's confs a source cannot have a name."""
    reader = source.source_class()
    spark.dataSource.register(reader)
    return spark.readStream.format(reader.name()).options(**how.options()).load()


def word_count(master: str) -> list[Row]:
    flow = wordcount.flow(output=ps.noop(), rows=10**9, rows_per_s=10**7)
    spark = session(master)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    ours, theirs = [], []
    sides = [
        lambda: theirs.append(hand_written_rate(spark, named=True)),
        lambda: ours.append(penstock_rate(spark, flow)),
    ]
    for turn in range(7):  # in turns, and each first as often: the machine's mood is on both sides
        for side in sides if turn % 2 == 0 else sides[::-1]:
            side()
    spark.stop()
    del ours[0], theirs[0]  # the JVM warms up on neither side's account
    # A JVM keeps the confs it was started with, so Spark's defaults need one of their own.
    words = [sys.executable, "-m", "benchmarks.spark", "--default-confs", "--master", master]
    default = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1])
    same = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    plain = statistics.median(ours) / default
    return [
        row("word count, Penstock", statistics.median(ours), "rows/s"),
        row("word count, hand-written, same confs", statistics.median(theirs), "rows/s"),
        row("word count, hand-written, Spark's default confs", default, "rows/s"),
        row("Penstock / hand-written, same confs", same, "ratio", ">= 0.95", same >= 0.95),
        row("Penstock / hand-written, default confs", plain, "ratio", ">= 1.5", plain >= 1.5),
    ]


def default_confs(master: str) -> float:
    """Spark's defaults have 200 state partitions: a batch takes seconds, so fewer batches are measured."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        return hand_written_rate(spark, named=False, warm=3, measured=6)
    finally:
        spark.stop()


# ---- what measuring costs


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


# ---- pauses


def first_batch_after(query: Callable[[], Any], since: float) -> float:
    """Seconds from `since` until a query that was started anew has committed a batch."""
    while not query().recentProgress:
        time.sleep(0.005)
    return time.monotonic() - since


def pauses(master: str) -> list[Row]:
    spark = session(master)
    flow = ps.Dataflow("pauses")
    keys = 100_000
    numbers = flow.source("numbers", ps.generate(lambda n: n, schema="n bigint", rows=10**9, rows_per_s=20_000))
    kept = numbers.stateless("keep", lambda df: df.selectExpr(f"n % {keys} as k"))
    kept.keyed("count", keys=["k"], fn=lambda df: df.groupBy("k").count()).sink("out", ps.noop())
    plan = default_plan(flow, slots=2, replicas={"count": 2, "keep": 2}).replace(cuts=frozenset({"keep"}))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=plan, batch_s=0.5)
        engine.start()
        try:
            while engine.observe().operator("count").state_rows != keys:
                time.sleep(0.5)
            plain, stateless = [], []
            for turn in range(4):
                began = time.monotonic()
                engine.restart(engine.queries[0])
                plain.append(first_batch_after(lambda: engine.running(engine.queries[0]), began))
                time.sleep(2)
                began = time.monotonic()
                engine.apply(ps.rescaled(flow, engine.plan, {"keep": 3 if turn % 2 == 0 else 2}))
                stateless.append(first_batch_after(lambda: engine.running(engine.queries[0]), began))
                time.sleep(2)
            untouched = engine.run_id(engine.queries[0])
            keyed, whole = [], []
            for replicas in (4, 2, 3):
                began = time.monotonic()
                keyed.append(engine.apply(ps.rescaled(flow, engine.plan, {"count": replicas})).pause_s)
                whole.append(first_batch_after(lambda: engine.running(engine.queries[1]), began))
                time.sleep(2)
            stopped = int(engine.run_id(engine.queries[0]) != untouched)
        finally:
            engine.stop()
    spark.stop()
    ratio = statistics.median(stateless) / statistics.median(plain)
    return [
        row("plain stop and restart, to the next batch's end", statistics.median(plain), "s"),
        row("stateless replica change, to the next batch's end", statistics.median(stateless), "s"),
        row("stateless change / plain restart", ratio, "ratio", "<= 1.5", ratio <= 1.5),
        row("keyed change at 100k keys, queries paused", max(keyed), "s", "<= 6", max(keyed) <= 6),
        row("keyed change at 100k keys, to the next batch's end", max(whole), "s"),
        row("queries not touched that were stopped", stopped, "queries", "0", stopped == 0),
    ]


# ---- a cut


def cuts(master: str) -> list[Row]:
    """One query against two with a channel between, and with the alternative: Parquet and Spark's own file source."""
    spark = session(master)
    flow = ps.Dataflow("cut")
    numbers = flow.source("numbers", ps.generate(lambda n: n, schema="n bigint", rows=10**9, rows_per_s=2_000))
    numbers.stateless("one", lambda df: df.selectExpr("n + 1 as n")).stateless(
        "two", lambda df: df.selectExpr("n * 2 as n")
    ).sink("out", ps.noop())
    base = default_plan(flow, slots=2)
    found: list[Row] = []
    uncut = stays(spark, flow, base)
    cut = stays(spark, flow, base.replace(cuts=frozenset({"one"})))
    found += [
        row("median sojourn without a cut", uncut, "s"),
        row("added by a cut: Arrow files, Python source (chosen)", cut - uncut, "s"),
    ]
    for name, one_hop in (
        ("Arrow files, Python source (chosen)", arrow_hop),
        ("Parquet, Spark's file source", parquet_hop),
    ):
        latency, rows_per_s = one_hop(spark)
        found += [
            row(f"one hop: {name}: median", latency, "s"),
            row(f"one hop: {name}: rows/s at 200k-row appends", rows_per_s, "rows/s"),
        ]
    spark.stop()
    return found


def stays(spark: SparkSession, flow: Dataflow, plan: ps.Plan, **how: Any) -> float:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=plan, **how)
        engine.start()
        try:
            medians: list[float] = []
            while len(medians) < 12:
                time.sleep(1.0)
                sojourn = engine.observe().sojourn
                medians += [sojourn.p50_s] if sojourn else []
            return statistics.median(medians[4:])
        finally:
            engine.stop()


def hop(
    append: Callable[[DataFrame, str], Any], read: Callable[[], DataFrame], spark: SparkSession, at: Path
) -> tuple[float, float]:
    """From the start of an append to the end of the reader's batch that has it; small appends, then large ones."""
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
        (at / COMMITTED).write_text('{"generation": 1}')
        save_starts(at, "reader", {"hop": {"entry": 0}})
        schema = spark.range(1).selectExpr("id as n").schema.json()
        channel = EmbeddedChannel.create(at / "channels" / "hop", schema, None)
        return hop(
            lambda df, key: channel.append(df, key),
            lambda: channel.read(spark, name="hop", replicas=2, query="reader", opens_at=1),
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


def shown(rows: list[Row]) -> Table:
    table = Table("figure", "value", "unit", "bar", "ok")
    for one in rows:
        ok = "" if one["ok"] is None else "yes" if one["ok"] else "NO"
        value = f"{one['value']:,.3g}" if one["value"] < 100 else f"{one['value']:,.0f}"
        table.add_row(one["name"], value, one["unit"], one["bar"], ok)
    return table


PARTS = {"word-count": word_count, "overhead": overhead, "pauses": pauses, "cuts": cuts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--default-confs", action="store_true", help="Only word count on Spark's default confs.")
    given = parser.parse_args()
    if given.default_confs:
        print(default_confs(given.master))
        return
    rows: list[Row] = []
    for name, part in PARTS.items():
        if given.only in (None, name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += part(given.master)
    shutil.rmtree("spark-warehouse", ignore_errors=True)
    if given.json:
        print(json.dumps(rows))
    else:
        Console(width=120).print(shown(rows))


if __name__ == "__main__":
    main()
