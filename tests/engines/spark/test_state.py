"""Keyed state survives a change of its replicas, whichever of Spark's ways it is kept in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

import penstock
from tests.support.spark_runs import engine_for, play

pytestmark = pytest.mark.spark

ROWS, KEYS, A_DAY_MS = 4_000, 97, 86_400_000


def with_group_by(df: DataFrame) -> DataFrame:
    return df.groupBy("k").count().withColumnRenamed("count", "n")


def with_transform(df: DataFrame) -> DataFrame:
    class Counting(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.n = handle.getValueState("n", StructType([StructField("n", LongType())]), A_DAY_MS)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            n = (self.n.get()[0] if self.n.exists() else 0) + sum(len(some) for some in rows)
            self.n.update((n,))
            yield pd.DataFrame({"k": [key[0]], "n": [n]})

        def close(self) -> None:
            pass

    # State that expires: Spark runs batches for ever, and still the run comes to rest.
    return df.groupBy("k").transformWithStateInPandas(Counting(), "k bigint, n bigint", "Update", "ProcessingTime")


@pytest.mark.parametrize("fn", [with_group_by, with_transform])
def test_counts_survive_2_5_1_replicas(spark: SparkSession, tmp_path: Path, fn: Any) -> None:
    flow = penstock.Dataflow("counting")
    rows = flow.source("rows", penstock.generate(lambda n: n * n % KEYS, schema="k bigint", rows=ROWS, rows_per_s=500))
    rows.keyed("count", fn, keys=["k"]).sink("out", penstock.memory())
    engine = engine_for(flow, spark, tmp_path / "run", penstock.default_plan(flow, slots=2, replicas={"count": 2}))
    try:
        engine.start()
        play(engine, [penstock.rescaled(flow, engine.plan, {"count": replicas}) for replicas in (5, 1)])
        assert engine.plan.replicas == {"count": 1}
        counted: Counter[int] = Counter()
        for row in engine.rows("out"):
            counted[row["k"]] = max(counted[row["k"]], row["n"])
        assert counted == Counter(n * n % KEYS for n in range(ROWS))
    finally:
        engine.stop()
