"""Small dataflows over generated numbers."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.dataflow import Dataflow


def numbers(flow: Dataflow, rows: int, rows_per_s: float | None = None, name: str = "numbers") -> penstock.Stream:
    return flow.source(name, penstock.generate(lambda n: n, schema="n bigint", rows=rows, rows_per_s=rows_per_s))


def failing(flow_rows: int, broken: list[bool]) -> Dataflow:
    """Return a dataflow whose function fails when it is next compiled if `broken[0]` is set."""

    def doubled(df: DataFrame) -> DataFrame:
        return df.select(F.col("nowhere")) if broken[0] else df.selectExpr("n * 2 as m")

    flow = penstock.Dataflow("failing")
    numbers(flow, flow_rows, 400).stateless("double", doubled).keyed(
        "count", lambda df: df.groupBy("m").count(), keys=["m"]
    ).sink("out", penstock.memory())
    return flow
