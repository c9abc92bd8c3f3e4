"""Measurements of operators whose rows, selectivity and cost are known.

The operators sleep. On a busy machine they wake up late, so each one reports how long it really took, and the meter is
compared with that instead of with the duration that was asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import penstock
from penstock.engines.spark.compile.clocks import Timing
from penstock.engines.spark.compile.row_functions import apply_rows
from penstock.measure.estimators import service_moments
from tests.support.spark_runs import engine_for, wait_until

pytestmark = pytest.mark.spark

ROWS = 6_000
ROW_S, BATCH_ROW_S, STATE_ROW_S = 0.002, 0.001, 0.02  # shortest time per row


class Durations:
    """The durations of calls in worker processes, in a file per process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def sleep(self, seconds: float, rows: int = 1) -> None:
        """Sleep for these rows, and record the actual duration."""
        began = time.perf_counter()
        time.sleep(seconds)
        with (self._folder / str(os.getpid())).open("a") as file:
            file.write(f"{time.perf_counter() - began} {rows}\n")

    def by_call(self) -> pd.DataFrame:
        lines = [line.split() for file in self._folder.iterdir() for line in file.read_text().splitlines()]
        return pd.DataFrame(lines, columns=["seconds", "rows"]).astype(float)

    def seconds_per_row(self) -> float:
        calls = self.by_call()
        return float(calls.seconds.sum() / calls.rows.sum())


def wait_a_row(durations: Durations) -> Callable[[dict[str, int]], list[dict[str, int]]]:
    def wait(row: dict[str, int]) -> list[dict[str, int]]:
        durations.sleep(ROW_S)
        return [row, row, row] if row["n"] % 2 else []

    return wait


def wait_a_batch(durations: Durations) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def wait(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            durations.sleep(BATCH_ROW_S * len(batch), len(batch))
            yield batch[batch.n % 3 == 0]

    return wait


def test_rows_and_selectivity_are_exact_and_costs_near_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("known")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=ROWS, rows_per_s=1_500))
    by_row, by_batch = Durations(tmp_path / "by row"), Durations(tmp_path / "by batch")
    tripled = numbers.rows("odd_thrice", wait_a_row(by_row), schema="n bigint")
    thirds = tripled.stateless("thirds", lambda df: df.mapInPandas(wait_a_batch(by_batch), "n bigint"))
    native = thirds.stateless("native", lambda df: df.where(F.col("n") % 5 == 0))
    native.keyed("count", lambda df: df.groupBy("n").count(), keys=["n"]).sink("out", penstock.memory())
    plan = penstock.default_plan(flow, slots=2).replace(cuts=frozenset({"odd_thrice"}))
    engine = engine_for(flow, spark, tmp_path / "run", plan, sample_every=4)
    latencies, appended, arrived = [], 0, 0
    try:
        engine.start()
        deadline = time.monotonic() + 500
        while True:
            idle = engine.idle()
            window = engine.observe()
            latencies += [window.latency] if window.latency else []
            window_s = window.end_s - window.start_s
            appended += round(window.external_rows_per_s * window_s)
            assert window.operator("numbers").input_rows_per_s == window.external_rows_per_s  # the only source
            arrived += round((window.operator("thirds").input_rows_per_s or 0.0) * window_s)  # unknown after a change
            if engine.generation == 1 and (window.operator("thirds").rows_out_total or 0) > 0:
                # Rows that a change interrupts count too.
                engine.apply(penstock.rescaled(flow, engine.plan, {"count": 3}))
            elif idle:
                break
            assert engine.failure() is None and time.monotonic() < deadline
            time.sleep(0.5)
        window = engine.observe()  # a window without rows: its values are those of all rows
        shown = {operator.operator: operator for operator in window.operators}
    finally:
        engine.stop()
    odd = [n for n in range(ROWS) if n % 2 for _ in range(3)]
    third = [n for n in odd if n % 3 == 0]
    fifth = [n for n in third if n % 5 == 0]
    totals = {
        name: (operator.rows_in_total, operator.rows_out_total)
        for name, operator in shown.items()
        if name not in ("count", "out")
    }
    assert totals == {
        "numbers": (ROWS, ROWS),
        "odd_thrice": (ROWS, len(odd)),
        "thirds": (len(odd), len(third)),
        "native": (len(third), len(fifth)),
    }
    assert shown["count"].rows_in_total == len(fifth) and shown["count"].state_rows == len(set(fifth))
    assert shown["odd_thrice"].selectivity == 1.5
    assert shown["thirds"].selectivity == pytest.approx(1 / 3)
    assert shown["out"].selectivity is None
    row_s = by_row.seconds_per_row()
    assert shown["odd_thrice"].seconds_per_row == pytest.approx(row_s, rel=0.15)
    assert shown["thirds"].seconds_per_row == pytest.approx(by_batch.seconds_per_row(), rel=0.15)
    assert shown["odd_thrice"].true_rows_per_s == pytest.approx(1 / row_s, rel=0.15)
    assert shown["odd_thrice"].service_scv is not None and shown["thirds"].service_scv is None  # not a row function
    # Each row counts once, from its append to its result. A batch may hold a part of a row's results, and each window is rounded.
    assert sum(latency.rows for latency in latencies) == pytest.approx(ROWS, abs=len(latencies) / 2)
    assert all(0 < latency.p50_s <= latency.p95_s <= latency.p99_s for latency in latencies)
    assert 0.9 * ROWS <= appended <= ROWS  # the first rows may have been appended before the meter started
    assert shown["numbers"].backlog_rows == 0 and shown["native"].backlog_rows is None
    assert 0 < arrived <= len(odd)  # rows of a batch that runs arrived before it, and count once


def test_a_python_function_with_state_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    durations = Durations(tmp_path / "durations")

    def wait(key: tuple[int], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        state.update((1,))
        for batch in batches:
            durations.sleep(STATE_ROW_S * len(batch), len(batch))
            yield batch

    def with_state(df: DataFrame) -> DataFrame:
        kept = ("n bigint, k bigint", "seen bigint", "append", GroupStateTimeout.NoTimeout)
        return df.groupBy("k").applyInPandasWithState(wait, *kept)

    flow = penstock.Dataflow("stateful")
    numbers = flow.source("numbers", penstock.generate(lambda n: (n, n % 4), schema="n bigint, k bigint", rows=400))
    numbers.keyed("kept", with_state, keys=["k"], output_mode="append").sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", max_batch_rows=100)
    try:
        engine.start()
        wait_until(engine.idle, engine)
        cost_s = engine.observe().operator("kept").seconds_per_row
    finally:
        engine.stop()
    # The sum of its own clock and of Spark's time of state updates would be at least twice as long.
    assert cost_s is not None and STATE_ROW_S < cost_s < 1.7 * durations.seconds_per_row()


def test_user_defined_functions_of_columns_have_their_own_cost(spark: SparkSession, tmp_path: Path) -> None:
    row_durations, column_durations = Durations(tmp_path / "by row"), Durations(tmp_path / "by column")

    @F.udf("bigint")
    def by_row(n: int) -> int:
        row_durations.sleep(0.004)
        return n

    @F.pandas_udf("bigint")
    def by_column(n: pd.Series) -> pd.Series:
        column_durations.sleep(0.001 * len(n), len(n))
        return n

    flow = penstock.Dataflow("columns")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=4_000))
    native = numbers.stateless("native", lambda df: df.selectExpr("n + 1 as n"))
    rows = native.stateless("rows", lambda df: df.select(by_row("n").alias("n")))
    rows.stateless("columns", lambda df: df.select(by_column(F.col("n")).alias("n"))).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", sample_every=4)
    try:
        engine.start()
        wait_until(engine.idle, engine)
        engine.observe()
        window = engine.observe()
    finally:
        engine.stop()
    assert sorted(row["n"] for row in engine.rows("out")) == list(range(1, 4_001))
    cost = {operator.operator: operator.seconds_per_row for operator in window.operators}
    calls = row_durations.by_call()
    assert len(calls) == 4_000 == column_durations.by_call().rows.sum()
    standard_error = calls.seconds.std() / 1_000**0.5  # one row in four is timed
    assert cost["rows"] == pytest.approx(calls.seconds.mean(), rel=0.15, abs=4 * standard_error)
    assert cost["columns"] == pytest.approx(column_durations.seconds_per_row(), rel=0.15)
    assert window.operator("rows").service_scv is not None
    assert cost["native"] is None or cost["native"] < calls.seconds.mean() / 4


def test_each_input_has_its_own_backlog(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("two")
    many = flow.source("many", penstock.generate(lambda n: n, schema="n bigint", rows=3_000))
    none = flow.source("none", penstock.generate(lambda n: n, schema="n bigint", rows=3_000, rows_per_s=0))
    flow.stateless("both", inputs=[many, none]).sink("out", penstock.noop())
    engine = engine_for(flow, spark, tmp_path / "run", max_batch_rows=200)
    try:
        engine.start()
        wait_until(lambda: engine.observe().operator("many").rows_in_total > 0, engine)
        window = engine.observe()
    finally:
        engine.stop()
    assert window.operator("none").backlog_rows == 0 == window.operator("none").input_rows_per_s
    waiting = window.operator("many").backlog_rows
    assert waiting is not None and 0 < waiting < 3_000 and window.pipelines[0].backlog_rows == waiting


def wait_by_turns(row: dict[str, int]) -> dict[str, float]:
    """Every fourth row takes four times as long. The actual duration of each row is part of the output."""
    began = time.perf_counter()
    time.sleep(0.004 if row["n"] % 4 == 0 else 0.001)
    return row | {"took_s": time.perf_counter() - began}


def test_one_row_in_n_determines_mean_and_variance(spark: SparkSession) -> None:
    timing = Timing(spark.sparkContext, every=4)  # the sampling period equals the period of the rows
    numbers = spark.range(ROWS).select(F.col("id").alias("n"))
    timed = apply_rows(numbers, "wait", wait_by_turns, "n bigint, took_s double", timing)
    pulls, took_s = [], []
    for _ in range(2):  # each pull returns only the samples since the previous pull
        took_s += [row.took_s for row in timed.collect()]
        pulls.append(timing.pull())
    moments = service_moments(pull.sample for pull in pulls)
    assert moments is not None
    mean_s, scv = moments
    rows = pd.Series(took_s)
    assert sum(pull.sample.rows for pull in pulls) == pytest.approx(len(rows) / 4, rel=0.1)
    # The sampling error of the mean and of the variance is far larger if a few rows slept much longer than the others.
    assert mean_s == pytest.approx(rows.mean(), rel=0.1, abs=4 * rows.std() / (len(rows) / 4) ** 0.5)
    chance = np.random.default_rng(1)
    samples = chance.choice(rows, size=(200, len(rows) // 4))
    standard_error = np.std(samples.var(axis=1) / samples.mean(axis=1) ** 2)
    assert scv == pytest.approx(rows.var() / rows.mean() ** 2, rel=0.05, abs=4 * standard_error)
    assert sum(pull.busy_s for pull in pulls) >= rows.sum()
    assert timing.pull()[:2] == (0.0, (0, 0.0, 0.0))


def test_unknown_measurements_are_none(spark: SparkSession, tmp_path: Path) -> None:
    flow = penstock.Dataflow("opaque")
    theirs = flow.source(
        "theirs",
        penstock.spark_source(lambda spark: spark.readStream.format("rate").option("rowsPerSecond", 200).load()),
    )
    theirs.stateless("even", lambda df: df.where("value % 2 = 0").select("value")).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(lambda: len(engine.rows("out")) > 50, engine)
        window = engine.observe()
        shown = {operator.operator: operator for operator in window.operators}
        assert window.latency is None and window.external_rows_per_s is None
        assert shown["theirs"].backlog_rows is None and shown["theirs"].rows_out_total
        values = [row["value"] for row in engine.rows("out")]
        assert len(values) == len(set(values)) and not any(value % 2 for value in values)
    finally:
        engine.stop()
