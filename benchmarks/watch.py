"""`watch` on twelve real programs of known capacity, from 5 % to 150 % load. `make bench-watch`.

Each program runs on a standalone cluster of this machine. Its operators wait instead of computing, so that slots and
not the cores of the machine limit it. The capacity is measured first, without `watch`, under a load that exceeds it.
Then `watch` observes the program at several loads. The capacity is measured again at the end, because other work on the
machine changes it. The run fails unless each statement is correct, or says that it is unknown, for both capacities. It
also fails if more than MOST_UNKNOWN of the statements about programs with a rate say so. A statement that is wrong for
one of the capacities only is shown as undecided: repeat it on a quiet machine.

    python -m benchmarks.watch --programs tasks,driver --loads 0.05,0.5,1.5 --seconds 60
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

import penstock
from penstock.brokers.broker import Broker
from penstock.brokers.maven_jars import MavenError, connector_jars
from penstock.control.policy import Reason
from penstock.engines.spark import cluster
from penstock.engines.spark.cluster import ClusterSize
from penstock.engines.spark.executors import negotiator_of
from penstock.engines.spark.session import session
from penstock.store import DecisionRecord, StoreReader

EXECUTORS, SLOTS = 3, 2
WINDOW_S = 5.0
MOST_UNKNOWN = 0.25
UNKNOWN = "unknown"
Start = Callable[[SparkSession, float, Path], list[StreamingQuery]]  # session, rows/s, folder


def waiting(row_s: float) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def wait(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            time.sleep(row_s * len(frame))
            yield frame

    return wait


def rate_source(spark: SparkSession, rows_per_s: float, partitions: int = 12) -> DataFrame:
    source = spark.readStream.format("rate").option("rowsPerSecond", max(1, round(rows_per_s)))
    return source.option("numPartitions", partitions).load().select("value")


def started(df: DataFrame, at: Path, name: str = "query", **trigger: Any) -> StreamingQuery:
    stream = df.writeStream.queryName(name).format("noop").option("checkpointLocation", str(at / name))
    return (stream.trigger(**trigger) if trigger else stream).start()


def tasks(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    return [started(rate_source(spark, rows_per_s).mapInPandas(waiting(0.01), "value long"), at)]


def fixed_cost(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    def batch(df: DataFrame, _: int) -> None:
        time.sleep(1.5)
        df.write.format("noop").mode("overwrite").save()

    rows = rate_source(spark, rows_per_s).mapInPandas(waiting(0.002), "value long")
    stream = rows.writeStream.queryName("query").foreachBatch(batch)
    return [stream.option("checkpointLocation", str(at / "query")).start()]


def driver(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    def batch(df: DataFrame, _: int) -> None:
        time.sleep(0.004 * len(df.collect()))

    stream = rate_source(spark, rows_per_s).writeStream.queryName("query").foreachBatch(batch)
    return [stream.option("checkpointLocation", str(at / "query")).start()]


def skewed(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    key = sf.when(sf.col("value") % 10 < 7, sf.lit(0)).otherwise(sf.col("value") % 1000)
    rows = rate_source(spark, rows_per_s).repartition(12, key).mapInPandas(waiting(0.01), "value long")
    return [started(rows, at)]


def few_tasks(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    return [started(rate_source(spark, rows_per_s, 1).mapInPandas(waiting(0.005), "value long"), at)]


def two_stages(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    rows = rate_source(spark, rows_per_s).mapInPandas(waiting(0.005), "value long")
    return [started(rows.repartition(4).mapInPandas(waiting(0.005), "value long"), at)]


def two_queries(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    rows = [rate_source(spark, rows_per_s / 2).mapInPandas(waiting(s), "value long") for s in (0.004, 0.012)]
    return [started(rows[0], at, "quick"), started(rows[1], at, "slow")]


def trigger(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    rows = rate_source(spark, rows_per_s).mapInPandas(waiting(0.01), "value long")
    return [started(rows, at, processingTime="4 seconds")]


def stateful(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    rows = rate_source(spark, rows_per_s).mapInPandas(waiting(0.005), "value long")
    counts = rows.groupBy((sf.col("value") % 50).alias("key")).count()
    stream = counts.writeStream.queryName("query").outputMode("update").format("noop")
    return [stream.option("checkpointLocation", str(at / "query")).start()]


ROWS_PER_FILE = 100


def write_file(folder: Path, number: int) -> None:
    part = folder / f".{number}"
    part.write_text("".join(f"{number * ROWS_PER_FILE + row}\n" for row in range(ROWS_PER_FILE)))
    part.rename(folder / f"{number}.txt")


def file_source(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    """Files arrive at a constant pace, and a batch reads four of them."""
    (folder := at / "files").mkdir(parents=True)
    write_file(folder, 0)
    lines = spark.readStream.option("maxFilesPerTrigger", 4).text(str(folder)).repartition(12)
    query = started(lines.mapInPandas(waiting(0.01), "value string"), at)

    def write() -> None:
        began, number = time.monotonic(), 1
        while query.isActive:
            while number * ROWS_PER_FILE < rows_per_s * (time.monotonic() - began):
                write_file(folder, number)
                number += 1
            time.sleep(0.05)

    threading.Thread(target=write, daemon=True).start()
    return [query]


def available_now(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    """The files are there before the query starts, and enough of them for a minute or two."""
    (folder := at / "files").mkdir(parents=True)
    for number in range(600):
        write_file(folder, number)
    lines = spark.readStream.option("maxFilesPerTrigger", 4).text(str(folder)).repartition(12)
    return [started(lines.mapInPandas(waiting(0.01), "value string"), at, availableNow=True)]


_BROKERS: list[Broker] = []


def kafka(spark: SparkSession, rows_per_s: float, at: Path) -> list[StreamingQuery]:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    if not _BROKERS:
        _BROKERS.append(Broker(Path(tempfile.mkdtemp())).start())
        atexit.register(_BROKERS[0].stop)
    servers, topic = _BROKERS[0].bootstrap_servers, f"rows-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})  # the results need it
    for created in admin.create_topics([NewTopic(topic, 6, 1)]).values():
        created.result()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = source.option("startingOffsets", "earliest").load().selectExpr("CAST(value AS STRING) value")
    query = started(rows.mapInPandas(waiting(0.01), "value string"), at)

    def produce() -> None:
        producer, began, number = Producer({"bootstrap.servers": servers}), time.monotonic(), 0
        while query.isActive:
            while number < rows_per_s * (time.monotonic() - began):
                producer.produce(topic, str(number).encode(), partition=number % 6)
                number += 1
            producer.poll(0)
            time.sleep(0.02)

    threading.Thread(target=produce, daemon=True).start()
    return [query]


@dataclass(frozen=True)
class Program:
    start: Start
    scale: Callable[[int], float]  # capacity of m executors / capacity of all, from the waiting times
    nominal: float  # rows/s of all executors without any other cost
    is_finite: bool = False  # it reads what is there and ends, so that it has to sustain no rate


def _waves(tasks: int, executors: int) -> int:
    return -(-tasks // (executors * SLOTS))


def _even(tasks: int) -> Callable[[int], float]:
    return lambda executors: _waves(tasks, EXECUTORS) / _waves(tasks, executors)


PROGRAMS = {
    "tasks": Program(tasks, _even(12), 600.0),
    "fixed cost": Program(fixed_cost, _even(12), 3000.0),
    "driver": Program(driver, lambda _: 1.0, 250.0),
    "skewed": Program(skewed, lambda _: 1.0, 143.0),
    "few tasks": Program(few_tasks, lambda _: 1.0, 200.0),
    "two stages": Program(two_stages, lambda m: (2 / 12 + 1 / 4) / (_waves(12, m) / 12 + _waves(4, m) / 4), 480.0),
    "two queries": Program(two_queries, _even(12), 750.0),
    "trigger": Program(trigger, _even(12), 600.0),
    "stateful": Program(stateful, _even(12), 1200.0),
    "files": Program(file_source, _even(12), 500.0),
    "available now": Program(available_now, _even(12), 500.0, is_finite=True),
    "kafka": Program(kafka, _even(6), 600.0),
}


def measured_capacity(spark: SparkSession, program: Program, at: Path, seconds: float) -> float:
    """Return the rows/s of the batches that end after the warm-up, under twice the nominal load."""
    queries = program.start(spark, 2.0 * program.nominal, at)
    try:
        time.sleep(seconds)
        rates = []
        for query in queries:
            reports = [report for report in query.recentProgress if report["numInputRows"]]
            late = reports[len(reports) // 2 :] if len(reports) > 2 else reports[-1:]
            busy_s = sum(report["durationMs"]["triggerExecution"] for report in late) / 1000
            rates.append(sum(report["numInputRows"] for report in late) / busy_s)
        return min(rates) * len(queries)  # each query has the same part of the load
    finally:
        for query in queries:
            query.stop()


def watched_decision(
    spark: SparkSession, program: Program, at: Path, rate: float, seconds: float
) -> tuple[DecisionRecord, float | None]:
    """Return the last decision before the program ends, and the measured input rate."""
    queries = program.start(spark, rate, at / "program")
    watch = penstock.watch(spark, at=at / "watch", executors=(1, 6), window_s=WINDOW_S)
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and all(query.isActive for query in queries):
            time.sleep(0.5)
        with StoreReader(at / "watch") as store:
            windows, decisions = store.windows(), store.decisions()
    finally:
        watch.stop()
        for query in queries:
            query.stop()
    return decisions[-1][1], windows[-1][1].external_rows_per_s


def verdict(program: Program, capacities: tuple[float, float], rate: float, row: DecisionRecord) -> str:
    """Compare a decision with the capacities before and after it; undecided if it is correct for one of them only."""
    before, after = (_verdict(program, capacity, rate, row) for capacity in capacities)
    return before if before == after else f"undecided: {before} before, {after} after"


def _verdict(program: Program, capacity: float, rate: float, row: DecisionRecord) -> str:
    """Compare a decision with a capacity. Within 10 % of the capacity both answers are accepted."""
    if row.reason_code in (Reason.MISSING, Reason.SETTLING, Reason.WARMING_UP):
        return UNKNOWN
    if program.is_finite:
        return UNKNOWN if row.reason_code == Reason.IDLE else "WRONG: it ends by itself"
    sustained = {count: capacity * program.scale(count) for count in range(1, 7)}
    most = max(sustained.values())
    if row.new is not None:
        count = row.new.slots // SLOTS
        # One more executor than before shows whether more of them help, if a saturated program has no known capacity.
        is_trial = count == EXECUTORS + 1 and "Whether that suffices is unknown" in row.reason
        if not is_trial and sustained[count] < 0.9 * min(rate, most):
            return "WRONG: too few"
        return "WRONG: not needed" if count > EXECUTORS and rate < 0.9 * capacity else "correct"
    if row.reason_code == Reason.AT_LIMIT:
        return "correct" if rate > 0.9 * most else "WRONG: suffices"
    if rate > 1.1 * capacity:
        return "WRONG: too few"
    if rate < 0.9 * sustained[EXECUTORS - 1]:  # executors must be released
        return UNKNOWN if "would suffice is unknown" in row.reason else "WRONG: fewer suffice"
    return "correct"


def failed(answers: Sequence[tuple[str, str]]) -> list[str]:
    """Return why the run fails: statements that are wrong or undecided, or too many that are unknown."""
    failures = [f"{name}: {answer}" for name, answer in answers if answer not in ("correct", UNKNOWN)]
    with_rate = [answer for name, answer in answers if not PROGRAMS[name].is_finite]
    unknown = with_rate.count(UNKNOWN)
    if unknown > MOST_UNKNOWN * len(with_rate):
        failures.append(f"{unknown} of {len(with_rate)} statements are unknown; at most {MOST_UNKNOWN:.0%} may be")
    return failures


def _interval(row: DecisionRecord) -> str:
    low, value, high = (row.inputs.get(f"capacity{end}_rows_per_s") for end in ("_low", "", "_high"))
    if low is None:
        return "unknown"
    return f"{low:.0f} to {'?' if high is None else f'{high:.0f}'}" + ("" if value is None else f" ({value:.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--loads", default="0.05,0.5,0.85,1.5")
    parser.add_argument("--seconds", type=float, default=75.0)
    options = parser.parse_args()
    at = Path(tempfile.mkdtemp(prefix="penstock-bench-watch-"))
    table = Table("program", "load", "capacity", "estimate", "rate", "measured", "decision", "verdict")
    answers: list[tuple[str, str]] = []  # program, verdict
    size = ClusterSize(workers=EXECUTORS, slots=SLOTS, memory_mb=512)
    with contextlib.ExitStack() as stack:
        up = stack.enter_context(cluster.start(at / "cluster", size, ends_with_process=True, patience_s=300))
        confs = dict(up.confs)
        with contextlib.suppress(MavenError):
            confs["spark.jars"] = ",".join(map(str, connector_jars()))
        spark = session(up.master, "bench-watch", confs | {"spark.sql.shuffle.partitions": "12"})
        spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
        stack.callback(spark.stop)
        negotiator_of(spark, warms_up=False).resize(EXECUTORS * SLOTS)
        for name in options.programs.split(","):
            program, folder = PROGRAMS[name], at / name.replace(" ", "-")
            capacity = measured_capacity(spark, program, folder / "capacity", 45.0)
            said = []
            for load in map(float, options.loads.split(",")):
                rate = load * capacity
                row, measured = watched_decision(spark, program, folder / f"load-{load:g}", rate, options.seconds)
                said.append((load, rate, row, measured))
            after = measured_capacity(spark, program, folder / "capacity-after", 45.0)
            for load, rate, row, measured in said:
                answer = verdict(program, (capacity, after), rate, row)
                answers.append((name, answer))
                shown = "unknown" if measured is None else f"{measured:.0f}"
                known = f"{capacity:.0f}, {after:.0f}"
                cells = (name, f"{load:.0%}", known, _interval(row), f"{rate:.0f}", shown, row.reason, answer)
                table.add_row(*cells)
                print(" | ".join(cells), flush=True)
    Console(width=200).print(table)
    if failures := failed(answers):
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
