"""A dataflow that doubles numbers, as a value and as the text of a flow file."""

from __future__ import annotations

import penstock

# `rows` and `rate` are filled in by `format`.
DOUBLE_FLOW = """
import penstock
flow = penstock.Dataflow("double")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows={rows}, rows_per_s={rate}))
numbers.rows("twice", lambda row: {{"n": 2 * row["n"]}}, schema="n bigint").sink("out", penstock.memory())
"""


def double_flow(rows: int | None) -> penstock.Dataflow:
    flow = penstock.Dataflow("double")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=rows, rows_per_s=1_000.0))
    numbers.rows("twice", lambda row: {"n": 2 * row["n"]}, schema="n bigint").sink("out", penstock.memory())
    return flow
