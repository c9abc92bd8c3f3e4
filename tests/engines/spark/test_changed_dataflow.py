"""Runs whose dataflow was edited before they are resumed, and functions with hidden state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.spark.compile.refusals import refuse_hidden_state
from tests.support.counting_processor import count_with_processor
from tests.support.spark_runs import engine_for, wait_until, wait_until_failed

pytestmark = pytest.mark.spark


def pairs(fn: Callable[[DataFrame], DataFrame], rows: int, rows_per_s: float = 10_000) -> Dataflow:
    flow = penstock.Dataflow("pairs")
    made = penstock.generate(lambda n: (n, -n), schema="a bigint, b bigint", rows=rows, rows_per_s=rows_per_s)
    flow.source("pairs", made).stateless("shape", fn).sink("out", penstock.memory())
    return flow


def test_a_run_continues_with_edited_functions_rates_and_rows_and_refuses_other_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(flow: Dataflow) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        plan = penstock.default_plan(flow, slots=2).replace(cuts=frozenset({"shape"}))
        engine = engine_for(flow, spark, tmp_path / "run", plan)
        try:
            engine.start()
            recoveries = engine.recover()
            wait_until(engine.idle, engine)
            assert engine.observe().operators
            return recoveries, engine.rows("out")
        finally:
            engine.stop()

    mine = F.max("a").alias("most")  # an observation of the user is not one of Penstock's
    recoveries, _ = run(pairs(lambda df: df.select("a", "b").observe("rows_mine", mine), rows=20))
    assert recoveries == ()
    recoveries, rows = run(pairs(lambda df: df.select("b", "a"), rows=50, rows_per_s=5_000))
    assert recoveries == ("Source 'pairs' continues at 5000 rows/s, as it is declared now.",)
    assert sorted((row["a"], row["b"]) for row in rows) == [(n, -n) for n in range(50)]
    with pytest.raises(
        penstock.PlanError, match="it returns b string, c int in place of b bigint; return the old columns"
    ):
        run(pairs(lambda df: df.selectExpr("a", "'x' as b", "1 as c"), rows=50))
    assert not spark.streams.active


def test_other_sources_and_sinks_are_refused_when_a_run_is_resumed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flow(source: Any) -> Dataflow:
        flow = penstock.Dataflow("ends")
        flow.source("in", source).sink("out", penstock.parquet("out"))
        return flow

    def start(source: Any) -> None:
        engine = engine_for(flow(source), spark, tmp_path / "run")
        try:
            engine.start()
        finally:
            engine.stop()

    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    start(penstock.files("*.txt"))
    with pytest.raises(
        penstock.PlanError,
        match="'in' is generated rows at a rate, but was files as they appear at the start of the run",
    ):
        start(penstock.generate(str, schema="value string", rows_per_s=1))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(
        penstock.PlanError, match="'out' is parquet files in '.*/elsewhere/out', but was parquet files in"
    ):
        start(penstock.files("*.txt"))


STATIC = "SELECT explode(sequence(0, 3)) AS value"


def test_state_that_a_stateless_function_hides_is_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").name("rates").load().withWatermark("timestamp", "1 second")
    other = stream.select("value")
    for hides in (
        stream.groupBy("value").count(),
        stream.dropDuplicates(["value"]),
        stream.dropDuplicatesWithinWatermark(["value"]),
        stream.limit(5),
        stream.join(other, "value"),
        stream.groupBy("value").applyInPandasWithState(lambda *_: (), "v int", "v int", "append", "NoTimeout"),
        count_with_processor(stream.selectExpr("value as k")),
    ):
        with pytest.raises(
            penstock.DataflowError, match="'f' is declared stateless, but .*; declare it with keyed or global_state"
        ):
            refuse_hidden_state("f", [stream], hides)
    counted = stream.groupBy("value").count()
    for before, harmless in (
        (stream, stream.join(spark.sql(STATIC).groupBy("value").count(), "value")),
        (stream, stream.select("value").union(other)),
        (counted, counted.where("count > 1")),
        (counted, counted.where("count > 1").union(counted.where("count < 1"))),
    ):
        refuse_hidden_state("f", [before], harmless)


def test_a_mistake_that_only_spark_detects_is_refused_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    def start(declare: Callable[[penstock.Stream], penstock.Stream]) -> None:
        flow = penstock.Dataflow("mistaken")
        times = penstock.generate(lambda n: (n, n), schema="at timestamp, k bigint", rows=10)
        declare(flow.source("times", times, watermark=("at", "1 second"))).sink("out", penstock.memory())
        engine_for(flow, spark, tmp_path / "run").start()

    with pytest.raises(penstock.DataflowError, match="'first' is declared stateless"):
        start(lambda stream: stream.stateless("first", lambda df: df.dropDuplicates(["k"])))

    with pytest.raises(
        penstock.DataflowError, match="'twice' uses an input more than once, .*; declare each use as a separate op"
    ):
        start(lambda stream: stream.stateless("twice", lambda df: df.where("k > 5").union(df.where("k < 5"))))

    def windows(df: DataFrame) -> DataFrame:
        return df.groupBy(F.window("at", "5 seconds"), "k").count()

    with pytest.raises(
        penstock.DataflowError, match=r"on column 'window' of type struct<.*>, but it needs a timestamp.*F\.window_time"
    ):
        start(lambda stream: stream.keyed("count", windows, keys=["k"]).watermark("window", "1 second"))


def test_a_changed_state_is_refused_with_its_operator(spark: SparkSession, tmp_path: Path) -> None:
    def flow(*aggregates: Any, grouping: tuple[str, ...] = ("k",), rows: int = 60) -> Dataflow:
        flow = penstock.Dataflow("sums")
        schema = "k int, n bigint, m bigint"
        pairs = flow.source("pairs", penstock.generate(lambda n: (n % 3, n, -n), schema=schema, rows=rows))
        keyed = pairs.keyed("sum", lambda df: df.groupBy(*grouping).agg(*aggregates), keys=["k"])
        keyed.sink("out", penstock.memory())
        return flow

    engine = engine_for(flow(F.sum("n").alias("s"), rows=30), spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
    finally:
        engine.stop()
    # The first two keep one bigint per key as well, so that Spark would continue with the sums.
    for changed, shown in ((F.max("n"), "max"), (F.sum("m"), "sum"), (F.collect_list("n"), "collect_list")):
        engine = engine_for(flow(changed.alias("s")), spark, tmp_path / "run")
        with pytest.raises(penstock.PlanError) as refusal:
            engine.start()
        engine.stop()
        column = "m" if shown == "sum" else "n"
        assert str(refusal.value) == (
            f"Operator 'sum' aggregates with {shown}({column}), but its state in '{tmp_path / 'run'}' was aggregated "
            "with sum(n). Restore the function, or begin a new run in another directory."
        )
    # Spark detects other keys when it loads the state.
    engine = engine_for(flow(F.sum("n").alias("s"), grouping=("k", "m")), spark, tmp_path / "run")
    try:
        engine.start()
        failure = wait_until_failed(engine)
        assert "STATE_STORE" not in failure
        assert "the state of 'sum' in the run directory has other columns than its function keeps now" in failure
        assert "restore the function, or begin a new run in another directory" in failure
    finally:
        engine.stop()
