"""Throughput of the Nexmark queries: Penstock compared with the same query in plain PySpark, in one session.

`python -m benchmarks.nexmark [--json] [--only q5] [--turns 4]`. Both sides read the same source with the same batch
sizes, call the same functions, have the same properties and partitions, and write to Spark's noop sink. All rows exist
at the start. A rate is the number of rows after the warm-up, divided by the time until the last query has processed
them. The two turns of a pair follow each other, and every other pair has the opposite order, so that a JVM that still
becomes faster favours no side. The ratio is the median over the pairs. The ratio of the CPU times per row explains it
on a busy machine.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks.cpu_time import CpuRecord
from benchmarks.figures import Row, print_all, row
from penstock.apps import nexmark
from penstock.dataflow import Dataflow, Kind
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.reading.gate import PLAN_FILE
from penstock.engines.spark.reading.offsets import save_start_offsets
from penstock.engines.spark.reading.reader import ReaderOptions
from penstock.engines.spark.run_directory.committed import SourceInput
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.engines.spark.sources.factory import create_source

BAR = 0.95
BATCH_ROWS = 10_000  # per source
BATCH_S = 60.0  # no batch takes so long, so BATCH_ROWS alone limits the batches of both sides
REPLICAS = 2
WARM_BATCHES = 4  # batches with rows; a run of Penstock begins with an empty one
WARM_PAIRS = 2  # turns of each side that warm up the JVM and are not counted
SHOWN_PHASES = 7  # of the durations of a batch
WINDOW_S = 2.0  # a run observes its queries this often
SETTINGS = {"events_per_s": 10_000}  # event time passes as fast as in the public benchmark
# Events of a turn, so that some 15 batches are measured. Query 6 calls Python for every auction.
EVENTS = {"q0": 500_000, "q1": 500_000, "q2": 500_000, "q3": 4_000_000, "q4": 200_000, "q5": 200_000}
EVENTS |= {"q6": 150_000, "q7": 200_000, "q8": 4_000_000, "q11": 200_000, "q12": 200_000}

Progress = dict[str, Any]


class Turn(NamedTuple):
    """The result of one run of one side."""

    rows_per_s: float
    cpu_us: float  # per row, of all processes
    phases: str  # the duration of a batch of each query and its parts


def penstock_turn(spark: SparkSession, flow: Dataflow) -> Turn:
    settings = EngineSettings(batch_s=BATCH_S, max_batch_rows=BATCH_ROWS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        plan = penstock.default_plan(flow, slots=REPLICAS)
        engine = SparkEngine(flow, at, spark=spark, plan=plan, settings=settings)
        cpu = CpuRecord()
        engine.start()
        try:
            observe_s = time.monotonic() + WINDOW_S
            with cpu.sampling():
                while not engine.idle():
                    time.sleep(1.0)  # a run asks once per window; more questions would take time from the queries
                    assert engine.failure() is None, engine.failure()
                    if time.monotonic() > observe_s:
                        engine.observe()
                        observe_s += WINDOW_S
            first = [query for query in engine.queries if any(isinstance(part, SourceInput) for part in query.inputs)]
            return measured(
                [batches(engine.running(query)) for query in first],
                [batches(engine.running(query)) for query in engine.queries],
                cpu,
            )
        finally:
            engine.stop()


def plain_turn(spark: SparkSession, flow: Dataflow) -> Turn:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        at = Path(folder)
        (at / PLAN_FILE).write_text('{"generation": 1}')
        sources = [operator for operator in flow.operators if operator.kind is Kind.SOURCE]
        save_start_offsets(at, "plain", {operator.name: {"row": 0} for operator in sources})
        frames = {}
        for operator in sources:
            options = ReaderOptions(
                name=operator.name,
                replicas=REPLICAS,
                query="plain",
                opens_at=1,
                run=at,
                batch_s=BATCH_S,
                max_rows=BATCH_ROWS,
            )
            source = create_source(operator, at / "sources")
            source.start_clock()
            frames[operator.name] = source.read(spark, options)
        spark.conf.set("spark.sql.shuffle.partitions", str(REPLICAS))
        output = composed(flow, frames)
        query = output.writeStream.outputMode("append").format("noop").option("checkpointLocation", f"{at}/c").start()
        cpu = CpuRecord()
        try:
            with cpu.sampling():
                query.processAllAvailable()
            progress = batches(query)
            return measured([progress], [progress], cpu)
        finally:
            query.stop()


def composed(flow: Dataflow, frames: dict[str, DataFrame]) -> DataFrame:
    """Return the DataFrame that a user would write: the functions of the operators and the watermarks, in one query."""
    for operator in flow.operators:
        if operator.kind is Kind.SINK:
            return frames[operator.inputs[0]]
        if operator.kind is not Kind.SOURCE:
            frames[operator.name] = operator.fn(*(frames[name] for name in operator.inputs))  # type: ignore[operator, misc]
        if operator.watermark is not None:
            watermark = operator.watermark
            frames[operator.name] = frames[operator.name].withWatermark(watermark.column, watermark.delay)
    raise AssertionError("the dataflow has no sink")


def batches(query: Any) -> list[Progress]:
    """Return the progress of the batches that ran, without reports of an idle query."""
    return [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]


def measured(reading: list[list[Progress]], all_queries: list[list[Progress]], cpu: CpuRecord) -> Turn:
    """Return the rate and the cost from the end of the warm-up to the end of the last batch of any query."""
    starts, rows = [], 0
    for progress in reading:
        counted = [batch for batch in progress if batch["numInputRows"]][WARM_BATCHES:]
        starts.append(start_s(counted[0]))
        rows += sum(batch["numInputRows"] for batch in counted)
    began_s = min(starts)
    ended_s = max(
        start_s(batch) + batch["durationMs"]["triggerExecution"] / 1000 for query in all_queries for batch in query
    )
    phases = "; ".join(phase_medians([batch for batch in query if start_s(batch) >= began_s]) for query in all_queries)
    return Turn(rows / (ended_s - began_s), 1e6 * cpu.between(began_s, ended_s) / rows, phases)


def phase_medians(measured_batches: list[Progress]) -> str:
    """Return the number of batches and the median duration in ms of the whole batch and of its longest parts."""
    durations: dict[str, list[float]] = {}
    for batch in measured_batches:
        for phase, took_ms in batch["durationMs"].items():
            durations.setdefault(phase, []).append(took_ms)
    medians = {phase: statistics.median(values) for phase, values in durations.items()}
    longest = sorted(medians.items(), key=lambda item: -item[1])[:SHOWN_PHASES]
    return f"{len(measured_batches)} batches, " + ", ".join(f"{phase} {took_ms:.0f}" for phase, took_ms in longest)


def start_s(batch: Progress) -> float:
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def compared(query: ModuleType, spark: SparkSession, turns: int) -> list[Row]:
    name = query.__name__.rpartition(".")[2]
    flow = query.flow(output=penstock.noop(), rows=EVENTS[name], **SETTINGS)
    pairs: list[tuple[Turn, Turn]] = []  # plain PySpark, Penstock
    for number in range(WARM_PAIRS + turns):
        if number % 2 == 0:
            plain, own = plain_turn(spark, flow), penstock_turn(spark, flow)
        else:
            own, plain = penstock_turn(spark, flow), plain_turn(spark, flow)
        kind = "warm-up" if number < WARM_PAIRS else "pair"
        for side, turn in (("plain PySpark", plain), ("Penstock", own)):
            print(f"  {name}, {kind}, {side}: {shown_turn(turn)}", file=sys.stderr, flush=True)
        pairs += [(plain, own)] if number >= WARM_PAIRS else []
    ratio = statistics.median(own.rows_per_s / plain.rows_per_s for plain, own in pairs)
    cost = statistics.median(own.cpu_us / plain.cpu_us for plain, own in pairs)
    return [
        row(f"{name}, Penstock", statistics.median(own.rows_per_s for _, own in pairs), "rows/s"),
        row(f"{name}, plain PySpark", statistics.median(plain.rows_per_s for plain, _ in pairs), "rows/s"),
        row(f"{name}, Penstock / plain PySpark", ratio, "ratio", f">= {BAR}", ratio >= BAR),
        row(f"{name}, CPU time per row, Penstock / plain PySpark", cost, "ratio"),
    ]


def shown_turn(turn: Turn) -> str:
    return f"{turn.rows_per_s:,.0f} rows/s and {turn.cpu_us:.0f} us of CPU per row; {turn.phases}"


def main() -> None:
    names = {query.__name__.rpartition(".")[2]: query for query in nexmark.QUERIES}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=names)
    parser.add_argument("--turns", type=int, default=4, help="Pairs to measure; an even number.")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    spark = session(given.master)
    parts = {
        name: lambda spark, query=query: compared(query, spark, given.turns)  # type: ignore[misc]
        for name, query in names.items()
    }
    print_all(parts, given.only, spark, as_json=given.json)
    spark.stop()
    shutil.rmtree("spark-warehouse", ignore_errors=True)


if __name__ == "__main__":
    main()
