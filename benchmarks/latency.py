"""Predicted against measured mean latency on Spark: `python -m benchmarks.latency [--json] [--seconds S]`.

Three operators that wait run in one query each, in `local[16]`. Four plans are run to fit the micro-batch model of each
query like DRS: the cost per row is measured, and the remaining batch time is a linear function of the replicas. The
latencies of other plans are then predicted before these plans are run.
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
EXTRACT_S, MATCH_S, DESCRIBE_S = 0.010, 0.016, 0.006  # per row: 1, 1.6 and 0.6 busy slots at RATE
Counts = tuple[int, int, int]
NAMES = ("extract", "match", "describe")

# Few and many replicas at two rates identify the three parameters of the model.
FITTED: tuple[tuple[Counts, float], ...] = (
    ((2, 3, 1), 0.5 * RATE),
    ((2, 3, 1), RATE),
    ((5, 6, 4), 0.5 * RATE),
    ((5, 6, 4), RATE),
)
# Other replicas and rates than those above. The load of each query stays below 75 %, because the backlog of a plan
# change would otherwise take minutes to drain.
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
    """Wait for each row; `dropDuplicates` gives the operator state."""
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
    """The measurements of a plan at a rate, after the backlog of the plan change was drained."""

    counts: Counts
    rows_per_s: float
    latency_s: float
    samples: tuple[tuple[BatchSample, ...], ...]  # by query: mean batch of each window
    row_s: tuple[float, ...]  # by query


def run_trial(engine: SparkEngine, counts: Counts, rows_per_s: float, seconds: float) -> Trial:
    engine.apply(engine.plan.replace(replicas=dict(zip(NAMES, counts, strict=True))))
    engine.set_rate("frames", rows_per_s)
    steady_from_s = time.time() + 0.4 * seconds
    give_up_at = time.monotonic() + 10 * seconds
    windows: list[Window] = []
    last_batch_s: dict[str, float] = {}  # by query
    span_s = 0.0
    while span_s < seconds:
        time.sleep(1.0)
        window = engine.observe()
        if (failure := engine.failure()) is not None or time.monotonic() > give_up_at:
            raise RuntimeError(failure or f"Replicas {counts} do not sustain {rows_per_s} rows/s.")
        backlog_rows = sum(query.backlog_rows or 0 for query in window.pipelines)
        last_batch_s |= {query.pipeline: query.batch_s for query in window.pipelines if query.batch_s}
        if not windows and backlog_rows > rows_per_s * (1.0 + sum(last_batch_s.values())):
            steady_from_s = max(steady_from_s, window.end_s)  # the backlog exceeds the arrivals of one batch
        # Count only rows that arrived after the backlog of the change was drained.
        if windows or (window.latency is not None and window.end_s - window.latency.mean_s > steady_from_s):
            windows.append(window)
            span_s = windows[-1].end_s - windows[0].start_s
    latencies = [window.latency for window in windows if window.latency is not None]
    latency_s = sum(latency.rows * latency.mean_s for latency in latencies) / sum(latency.rows for latency in latencies)
    print(f"{counts} at {rows_per_s:.0f} rows/s: {latency_s:.2f} s", file=sys.stderr, flush=True)
    return Trial(
        counts=counts,
        rows_per_s=rows_per_s,
        latency_s=latency_s,
        samples=tuple(_mean_batches(windows, number, counts[number]) for number in range(3)),
        row_s=tuple(_mean_row_s(windows, name) for name in NAMES),
    )


def _mean_batches(windows: list[Window], query: int, replicas: int) -> tuple[BatchSample, ...]:
    """Return the mean batch of each window. Batch time is linear in rows and replicas, so means are valid samples."""
    return tuple(
        BatchSample(rows=seen.rows_in / seen.batches, replicas=replicas, batch_s=seen.batch_s)
        for seen in (window.pipelines[query] for window in windows)
        if seen.batches and seen.batch_s
    )


def _mean_row_s(windows: list[Window], operator: str) -> float:
    """Return the mean cost per row of an operator over all windows."""
    costs = [(seen.rows_in or 0, seen.seconds_per_row or 0.0) for seen in (w.operator(operator) for w in windows)]
    costs = [(rows, row_s) for rows, row_s in costs if rows and row_s]
    return sum(rows * row_s for rows, row_s in costs) / sum(rows for rows, _ in costs)


def fit_models(trials: list[Trial]) -> list[MicroBatch]:
    """Return the model of each query, without a load."""
    models = []
    for query in range(3):
        row_s = statistics.fmean(trial.row_s[query] for trial in trials)
        samples = [sample for trial in trials for sample in trial.samples[query]]
        rests = [sample.batch_s - row_s * sample.rows / sample.replicas for sample in samples]
        (batch_s, replica_s), _ = nnls(np.array([[1.0, sample.replicas] for sample in samples]), np.array(rests))
        models.append(MicroBatch(arrival_per_s=0.0, batch_s=batch_s, row_s=row_s, replica_s=replica_s))
    return models


def predicted_s(models: list[MicroBatch], counts: Counts, rows_per_s: float) -> float:
    """Return the predicted latency: the sum of 1.5 D* over the queries."""
    return sum(model.at_rate(rows_per_s).mean_s(k) for model, k in zip(models, counts, strict=True))


def measure(seconds: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    # On two cores the optimising JIT compiler would compete with the first plans.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m")
    spark = session(f"local[{SLOTS}]", "latency")
    flow = waiting()
    first = dict(zip(NAMES, FITTED[0][0], strict=True))
    plan = Plan(dataflow=flow.name, cuts=frozenset({"extract", "match"}), replicas=first, slots=SLOTS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:
        engine = SparkEngine(flow, at, spark=spark, plan=plan)
        engine.start()
        try:
            run_trial(engine, FITTED[0][0], 0.5 * RATE, seconds)  # warm-up, not counted
            trials = [run_trial(engine, counts, rate, seconds) for counts, rate in FITTED]
            models = fit_models(trials)
            predictions_s = [predicted_s(models, counts, rate) for counts, rate in PREDICTED]
            measured = [run_trial(engine, counts, rate, seconds) for counts, rate in PREDICTED]
        finally:
            engine.stop()
            spark.stop()
    rows = [
        {"plan": trial.counts, "rows_per_s": trial.rows_per_s, "predicted_s": predicted, "measured_s": trial.latency_s}
        for predicted, trial in zip(predictions_s, measured, strict=True)
    ]
    for row in rows:
        row["error"] = abs(row["predicted_s"] / row["measured_s"] - 1)
    rank = float(spearmanr([row["predicted_s"] for row in rows], [row["measured_s"] for row in rows]).statistic)
    summary = {
        "rank_correlation": rank,
        "median_error": statistics.median(row["error"] for row in rows),
        "models": {
            name: {"batch_s": model.batch_s, "row_s": model.row_s, "replica_s": model.replica_s}
            for name, model in zip(NAMES, models, strict=True)
        },
    }
    return rows, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="Measured seconds per plan, after its warm-up.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows, summary = measure(options.seconds)
    if options.json:
        print(json.dumps({"plans": rows, **summary}, indent=2))
        return
    table = Table("extract, match, describe", "rows/s", "predicted", "measured", "error")
    for row in rows:
        counts = ", ".join(str(k) for k in row["plan"])
        predicted, measured = f"{row['predicted_s']:.2f} s", f"{row['measured_s']:.2f} s"
        table.add_row(counts, f"{row['rows_per_s']:.0f}", predicted, measured, f"{row['error']:.0%}")
    console = Console()
    console.print(table)
    rank, error = summary["rank_correlation"], summary["median_error"]
    console.print(f"rank correlation {rank:.2f} (bar: at least 0.9), median error {error:.0%} (bar: at most 20 %)")
    for name, model in summary["models"].items():
        console.print(
            f"{name}: {model['batch_s'] * 1000:.0f} ms per batch, {model['row_s'] * 1000:.1f} ms per row, "
            f"{model['replica_s'] * 1000:.0f} ms per replica"
        )


if __name__ == "__main__":
    main()
