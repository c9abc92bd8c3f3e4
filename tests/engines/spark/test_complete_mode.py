"""Complete mode: each sink holds the whole, sorted result of the last batch, also after a change of plan."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from tests.support.spark_runs import engine_for, plan_of, play, wait_until

pytestmark = pytest.mark.spark

ROWS = 600


def word(n: int) -> tuple[str]:
    return (f"w{n * n % 17}",)


def top(df: DataFrame) -> DataFrame:
    return df.orderBy(F.desc("n"), "word").limit(5)


def flow_to(sink: Any, rows: int = ROWS) -> penstock.Dataflow:
    flow = penstock.Dataflow("top")
    words = flow.source("words", penstock.generate(word, schema="word string", rows=rows, rows_per_s=400))
    counts = words.keyed(
        "count", lambda df: df.groupBy("word").agg(F.count("*").alias("n")), keys=["word"], output_mode="complete"
    )
    counts.stateless("top", top).sink("out", sink)
    return flow


COUNTS = Counter(word(n)[0] for n in range(ROWS))
EXPECTED = sorted(COUNTS.items(), key=lambda item: (-item[1], item[0]))[:5]


@pytest.mark.parametrize("kind", ["memory", "parquet", "foreach_batch"])
def test_a_sink_holds_the_last_whole_result(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    batches: dict[int, list[tuple[str, int]]] = {}

    def keep(df: DataFrame, batch_id: int) -> None:
        batches[batch_id] = [(row.word, row.n) for row in df.collect()]

    sinks = {
        "memory": penstock.memory(),
        "parquet": penstock.parquet(tmp_path / "out"),
        "foreach_batch": penstock.foreach_batch(keep),
    }
    flow = flow_to(sinks[kind])
    engine = engine_for(flow, spark, tmp_path / "run", plan_of(flow, {"count": 1, "top": 2}, set()), max_batch_rows=150)
    try:
        engine.start()
        play(engine, [plan_of(flow, {"count": 3, "top": 1}, {"words"})])
        if kind == "memory":
            result = [(row["word"], row["n"]) for row in engine.rows("out")]
        elif kind == "parquet":
            (file,) = (tmp_path / "out").glob("*.parquet")  # one file: a reader never sees two results
            result = [(row.word, row.n) for row in spark.read.parquet(str(file)).collect()]
        else:
            assert sorted(batches) == list(range(len(batches)))  # the numbers continue after the change of plan
            result = batches[max(batches)]
        assert result == EXPECTED
    finally:
        engine.stop()


def test_a_resumed_run_continues_the_whole_result(spark: SparkSession, tmp_path: Path) -> None:
    """Half of the rows are counted by a run that is stopped within a batch or between two, and the rest by the next."""
    first = flow_to(penstock.memory(), rows=ROWS // 2)
    engine = engine_for(first, spark, tmp_path / "run", plan_of(first, {"count": 2, "top": 1}, set()))
    try:
        engine.start()
        wait_until(lambda: bool(engine.rows("out")), engine)
    finally:
        engine.stop()
    engine = engine_for(flow_to(penstock.memory()), spark, tmp_path / "run")
    try:
        engine.start()
        wait_until(engine.idle, engine)
        assert [(row["word"], row["n"]) for row in engine.rows("out")] == EXPECTED
    finally:
        engine.stop()


def test_sorting_needs_complete_mode(spark: SparkSession) -> None:
    flow = penstock.Dataflow("sorted")
    words = flow.source("words", penstock.generate(word, schema="word string", rows=ROWS))
    counts = words.keyed("count", lambda df: df.groupBy("word").count(), keys=["word"])
    counts.stateless("top", lambda df: df.orderBy("count")).sink("out", penstock.memory())
    with pytest.raises(
        penstock.PlanError,
        match="declare the operator that groups it with output_mode='complete', or sort the result when",
    ):
        penstock.check(flow, spark=spark)
