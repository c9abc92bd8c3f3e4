"""The throughput benchmarks on Spark: the output equals the oracle's after one plan change."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.apps.mst import (
    data_clean,
    decision_tree,
    grep,
    page_view,
    rolling_count,
    rolling_sort,
    sol,
    unique_visitor,
)
from tests.support.plain_query import collect_stream, compose, write_files
from tests.support.spark_runs import engine_for, play

pytestmark = pytest.mark.spark

ROWS = 900
# Each app with the cuts and replicas of its new plan. Apps that need no cut start without one.
CHANGES: list[tuple[ModuleType, set[str], dict[str, int], dict[str, Any]]] = [
    (grep, {"lines"}, {"match": 3}, {}),
    (rolling_count, {"split"}, {"count": 3}, {}),
    (unique_visitor, set(), {"first_visit": 1, "visitors": 3}, {}),
    (page_view, {"parse"}, {"views": 1}, {}),
    (data_clean, {"parse"}, {"parse": 3}, {}),
    (sol, {"hop1", "hop2", "hop3"}, {"hop1": 1}, {}),
    (rolling_sort, {"records"}, {}, {}),
    (decision_tree, {"rows"}, {"parse": 3}, {"features": 8, "classes": 3}),
]


@pytest.mark.parametrize(
    ("app", "cuts", "replicas", "how"), CHANGES, ids=[change[0].__name__.rpartition(".")[2] for change in CHANGES]
)
def test_output_is_the_oracle_s_after_a_plan_change(
    spark: SparkSession,
    tmp_path: Path,
    app: ModuleType,
    cuts: set[str],
    replicas: dict[str, int],
    how: dict[str, Any],
) -> None:
    flow = app.flow(output=penstock.memory(), rows=ROWS, rows_per_s=600, **how)
    # Batches are small, so channels are not read in the same pieces in which they were written.
    engine = engine_for(flow, spark, tmp_path, max_batch_rows=170)
    try:
        engine.start()
        changed = penstock.rescaled(flow, engine.plan, replicas)
        play(engine, [changed.replace(cuts=changed.cuts | cuts)])
        assert engine.generation == 2
        assert app.check(engine.rows("out"), ROWS, **how) == []
    finally:
        engine.stop()


def test_a_tree_learns_in_order_from_unordered_rows(plain_spark: Any, tmp_path: Path) -> None:
    how = {"features": 8, "classes": 3}
    lines = ["{};{}".format(*decision_tree.generator(n, **how)) for n in range(ROWS)]
    random.Random(3).shuffle(lines)
    folder = write_files(tmp_path / "rows", lines, [1, 400])
    text = plain_spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    rows = text.selectExpr("cast(split(value, ';')[0] as bigint) as n", "split(value, ';')[1] as value")
    frame = compose(decision_tree.flow(rows=ROWS, **how), {"rows": rows})
    output = collect_stream(frame, tmp_path / "checkpoint", "append")
    assert decision_tree.check(output, ROWS, **how) == []
