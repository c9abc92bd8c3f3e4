"""The contract of engines, on Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.dataflow import Dataflow
from tests.support.engine_contract import CHECKS, Subject
from tests.support.spark_runs import engine_for

pytestmark = pytest.mark.spark


def flow(rows: int, rows_per_s: float) -> Dataflow:
    flow = penstock.Dataflow("small")
    numbers = flow.source(
        "numbers", penstock.generate(lambda n: n, schema="n bigint", rows=rows, rows_per_s=rows_per_s)
    )
    doubled = numbers.stateless("double", lambda df: df.selectExpr("n * 2 as m"))
    # Each row has its own key, so each row causes one output row in any batch.
    doubled.keyed("count", lambda df: df.groupBy("m").count(), keys=["m"]).sink("out", penstock.memory())
    return flow


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check: Callable[[Subject], None], spark: SparkSession, tmp_path: Path) -> None:
    check(
        Subject(
            flow=flow,
            engine=lambda flow: engine_for(flow, spark, tmp_path / "run"),
            pass_time=lambda _: time.sleep(0.1),
            delivered=lambda engine: len(engine.rows("out")),
        )
    )
