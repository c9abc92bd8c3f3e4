"""The text of a flow file for the engine in memory; `rows` and `rate` are filled in by `format`."""

DOUBLE_FLOW = """
import penstock
flow = penstock.Dataflow("double")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows={rows}, rows_per_s={rate}))
numbers.rows("twice", lambda row: {{"n": 2 * row["n"]}}, schema="n bigint").sink("out", penstock.memory())
"""
