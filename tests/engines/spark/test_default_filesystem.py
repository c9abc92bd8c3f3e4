"""A run stays on the local disk under any default file system of Spark, and in a directory with an odd name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from tests.support.counting_processor import count_with_processor
from tests.support.spark_runs import engine_for, rows_read, wait_until

pytestmark = pytest.mark.spark

ROWS, KEYS = 2_000, 23


@pytest.fixture
def spark_on_hdfs(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the default file system of a YARN cluster, whose name node does not exist."""
    java_context: Any = spark.sparkContext._jsc
    hadoop = java_context.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    yield spark
    hadoop.set("fs.defaultFS", before)


def test_a_stateful_run_with_a_cut_is_rescaled_stopped_and_resumed(spark_on_hdfs: SparkSession, tmp_path: Path) -> None:
    run = tmp_path / "a run, 100% #1 with %20 and ü"
    flow = penstock.Dataflow("counting")
    rows = flow.source("rows", penstock.generate(lambda n: n * n % KEYS, schema="k bigint", rows=ROWS, rows_per_s=400))
    rows.keyed("count", count_with_processor, keys=["k"]).keyed(
        "most", lambda df: df.groupBy("k").agg({"n": "max"}).withColumnRenamed("max(n)", "n"), keys=["k"]
    ).sink("out", penstock.memory())
    plan = penstock.default_plan(flow, slots=2, replicas={"count": 2}).replace(cuts=frozenset({"count"}))
    engine = engine_for(flow, spark_on_hdfs, run, plan)
    try:
        engine.start()
        wait_until(lambda: rows_read(engine) > 0, engine)
        engine.apply(penstock.rescaled(flow, engine.plan, {"count": 3}))
    finally:
        engine.stop()
    for query in engine.queries:
        assert any((run / "checkpoints" / query.checkpoint / "commits").iterdir())
        assert (run / "checkpoints" / query.checkpoint / "state").is_dir()
    engine = engine_for(flow, spark_on_hdfs, run)
    try:
        engine.start()
        wait_until(engine.idle, engine)
        counted: Counter[int] = Counter()
        for row in engine.rows("out"):
            counted[row["k"]] = max(counted[row["k"]], row["n"])
        assert counted == Counter(n * n % KEYS for n in range(ROWS))
    finally:
        engine.stop()
    assert [path.name for path in tmp_path.iterdir()] == [run.name]
