"""Predicted against measured mean latency on Spark: `python -m benchmarks.latency [--json] [--seconds S]`.

Three operators that wait, a query each, in `local[16]`. A few plans are run to fit the micro-batch station of each
query as DRS does it: a row costs what was measured of its operator, and what batches take beside their rows is a
straight line of the replicas. Then other plans are predicted, written down, and only then run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls
from scipy.stats import spearmanr

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.measure.window import Window
from penstock.models.microbatch import BatchSample, MicroBatch
from penstock.plan import Plan

SLOTS = 16
RATE = 100.0  # rows/s
EXTRACT_S, MATCH_S, DESCRIBE_S = 0.010, 0.016, 0.006  # a row: 1, 1.6 and 0.6 slots' worth at that rate
Counts = tuple[int, int, int]
NAMES = ("extract", "match", "describe")

# Few and many replicas at both rates: what tells a, b and c apart.
FITTED: tuple[tuple[Counts, float], ...] = (
    ((2, 3, 1), 0.5 * RATE),
    ((2, 3, 1), RATE),
    ((5, 6, 4), 0.5 * RATE),
    ((5, 6, 4), RATE),
)
# None of these: other counts, other rates, and splits that suit the work and that do not. No query has more than three
# quarters of what its replicas can do: what piles up during a change would take minutes to go.
PREDICTED: tuple[tuple[Counts, float], ...] = (
    ((6, 7, 3), 0.3 * RATE),
    ((2, 2, 1), 0.4 * RATE),
    ((2, 3, 1), 0.75 * RATE),
    ((3, 5, 2), 0.9 * RATE),
    ((2, 3, 2), 1.1 * RATE),
    ((3, 4, 1), 1.2 * RATE),
    ((4, 5, 2), 1.3 * RATE),
    ((6, 8, 3), 1.6 * RATE),
)


def extract(row: dict[str, int]) -> dict[str, int]:
    time.sleep(EXTRACT_S)
    return {"feature": row["n"]}


def matched(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        time.sleep(MATCH_S * len(frame))
        yield frame


def match(df: DataFrame) -> DataFrame:
    """With state, and nothing to do for a row but to wait."""
    return df.dropDuplicates(["feature"]).mapInPandas(matched, "feature bigint").withColumnRenamed("feature", "logo")


def describe(row: dict[str, int]) -> dict[str, int]:
    time.sleep(DESCRIBE_S)
    return row


def waiting() -> Dataflow:
    flow = penstock.Dataflow("waiting")
    frames = flow.source("frames", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=RATE))
    features = frames.rows("extract", extract, schema="feature bigint")
    matches = features.keyed("match", match, keys=["feature"], output_mode="append", columns=["logo"])
    matches.rows("describe", describe, schema="logo bigint").sink("out", penstock.noop())
    return flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A plan under a rate, once what piled up during the change was gone."""

    counts: Counts
    rows_per_s: float
    latency_s: float
    samples: tuple[tuple[BatchSample, ...], ...]  # by query: its mean batch in each window
    row_s: tuple[float, ...]  # by query


def tried(engine: SparkEngine, counts: Counts, rows_per_s: float, seconds: float) -> Trial:
    engine.apply(engine.plan.replace(replicas=dict(zip(NAMES, counts, strict=True))))
    engine.set_rate("frames", rows_per_s)
    settled_s = time.time() + 0.4 * seconds
    give_up_at = time.monotonic() + 10 * seconds
    windows: list[Window] = []
    lasting_s: dict[str, float] = {}  # the last batch of each query
    span_s = 0.0
    while span_s < seconds:
        time.sleep(1.0)
        window = engine.observe()
        if (failure := engine.failure()) is not None or time.monotonic() > give_up_at:
            raise RuntimeError(failure or f"{counts} do not keep up with {rows_per_s} rows/s")
        waiting_rows = sum(one.backlog_rows or 0 for one in window.pipelines)
        lasting_s |= {one.pipeline: one.batch_s for one in window.pipelines if one.batch_s}
        if not windows and waiting_rows > rows_per_s * (1.0 + sum(lasting_s.values())):
            settled_s = max(settled_s, window.end_s)  # more than what comes during a batch
        # Only rows count that came once what piled up during the change was gone.
        if windows or (window.latency is not None and window.end_s - window.latency.mean_s > settled_s):
            windows.append(window)
            span_s = windows[-1].end_s - windows[0].start_s
    stays = [window.latency for window in windows if window.latency is not None]
    latency_s = sum(stay.rows * stay.mean_s for stay in stays) / sum(stay.rows for stay in stays)
    print(f"{counts} at {rows_per_s:.0f} rows/s: {latency_s:.2f} s", file=sys.stderr, flush=True)
    return Trial(
        counts=counts,
        rows_per_s=rows_per_s,
        latency_s=latency_s,
        samples=tuple(_mean_batches(windows, number, counts[number]) for number in range(3)),
        row_s=tuple(_mean_row_s(windows, name) for name in NAMES),
    )


def _mean_batches(windows: list[Window], query: int, replicas: int) -> tuple[BatchSample, ...]:
    """Batch time is a straight line of rows and replicas, and so are means of both."""
    return tuple(
        BatchSample(rows=one.rows_in / one.batches, replicas=replicas, batch_s=one.batch_s)
        for one in (window.pipelines[query] for window in windows)
        if one.batches and one.batch_s
    )


def _mean_row_s(windows: list[Window], operator: str) -> float:
    """Of the rows that were counted."""
    seen = [one for one in (window.operator(operator) for window in windows) if one.rows_in and one.seconds_per_row]
    return sum((one.rows_in or 0) * (one.seconds_per_row or 0.0) for one in seen) / sum(
        one.rows_in or 0 for one in seen
    )


def fitted(trials: list[Trial]) -> list[MicroBatch]:
    """Of each query, where nothing arrives yet."""
    found = []
    for query in range(3):
        row_s = statistics.fmean(trial.row_s[query] for trial in trials)
        samples = [sample for trial in trials for sample in trial.samples[query]]
        rests = [one.batch_s - row_s * one.rows / one.replicas for one in samples]
        (batch_s, replica_s), _ = nnls(np.array([[1.0, one.replicas] for one in samples]), np.array(rests))
        found.append(MicroBatch(arrival_per_s=0.0, batch_s=batch_s, row_s=row_s, replica_s=replica_s))
    return found


def predicted_s(stations: list[MicroBatch], counts: Counts, rows_per_s: float) -> float:
    """1.5 D* in each query on the way."""
    return sum(one.at_rate(rows_per_s).mean_s(k) for one, k in zip(stations, counts, strict=True))


def measured(seconds: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    # As in the tests: on two cores the better compiler would be at work while the first plans are measured.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m")
    spark = session(f"local[{SLOTS}]", "latency")
    flow = waiting()
    first = dict(zip(NAMES, FITTED[0][0], strict=True))
    plan = Plan(dataflow=flow.name, cuts=frozenset({"extract", "match"}), replicas=first, slots=SLOTS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=plan)
        engine.start()
        try:
            tried(engine, FITTED[0][0], 0.5 * RATE, seconds)  # workers start and code is compiled on nobody's account
            trials = [tried(engine, counts, rate, seconds) for counts, rate in FITTED]
            stations = fitted(trials)
            said = [predicted_s(stations, counts, rate) for counts, rate in PREDICTED]
            seen = [tried(engine, counts, rate, seconds) for counts, rate in PREDICTED]
        finally:
            engine.stop()
            spark.stop()
    rows = [
        {"plan": trial.counts, "rows_per_s": trial.rows_per_s, "predicted_s": s, "measured_s": trial.latency_s}
        for s, trial in zip(said, seen, strict=True)
    ]
    for row in rows:
        row["error"] = abs(row["predicted_s"] / row["measured_s"] - 1)
    rank = float(spearmanr([row["predicted_s"] for row in rows], [row["measured_s"] for row in rows]).statistic)
    summary = {
        "rank_correlation": rank,
        "median_error": statistics.median(row["error"] for row in rows),
        "stations": {
            name: {"batch_s": one.batch_s, "row_s": one.row_s, "replica_s": one.replica_s}
            for name, one in zip(NAMES, stations, strict=True)
        },
    }
    return rows, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="measured a plan, behind its warm-up")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows, summary = measured(given.seconds)
    if given.json:
        print(json.dumps({"plans": rows, **summary}, indent=2))
        return
    table = Table("extract, match, describe", "rows/s", "predicted", "measured", "error")
    for row in rows:
        counts = ", ".join(str(k) for k in row["plan"])
        said, seen = f"{row['predicted_s']:.2f} s", f"{row['measured_s']:.2f} s"
        table.add_row(counts, f"{row['rows_per_s']:.0f}", said, seen, f"{row['error']:.0%}")
    console = Console()
    console.print(table)
    rank, error = summary["rank_correlation"], summary["median_error"]
    console.print(f"rank correlation {rank:.2f} (aim: at least 0.9), median error {error:.0%} (aim: at most 20%)")
    for name, one in summary["stations"].items():
        console.print(
            f"{name}: a batch {one['batch_s'] * 1000:.0f} ms, a row {one['row_s'] * 1000:.1f} ms, a replica "
            f"{one['replica_s'] * 1000:.0f} ms"
        )


if __name__ == "__main__":
    main()
