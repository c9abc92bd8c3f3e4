"""Aggregate in event-time windows, change the plan in the middle, and compare with a batch query over the same rows."""

from collections import Counter
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock

ROWS = 4_000


def click(n: int) -> dict[str, object]:
    return {"page": f"page{n % 5}", "at": datetime.fromtimestamp(1_700_000_000 + n // 50, UTC)}


def per_window(df: DataFrame) -> DataFrame:
    counts = df.groupBy(F.window("at", "10 seconds"), "page").count()
    return counts.select(F.unix_timestamp("window.start").alias("start"), "page", "count")


flow = penstock.Dataflow("clicks")
clicks = flow.source(
    "clicks", penstock.generate(click, schema="page string, at timestamp", rows=ROWS, rows_per_s=1_000)
).watermark("at", "5 seconds")
counts = clicks.keyed("count", per_window, keys=["page"], output_mode="append")
counts.sink("out", penstock.memory())

if __name__ == "__main__":
    with penstock.run(flow, at="runs/clicks") as run:
        run.rescale(count=3)
        run.wait_until_idle()
        streamed = {(row["start"], row["page"]): row["count"] for row in run.rows("out")}
    start = 1_700_000_000
    batch = Counter(((start + n // 50) // 10 * 10, f"page{n % 5}") for n in range(ROWS))
    closed = {key: count for key, count in batch.items() if key[0] + 10 <= start + (ROWS - 1) // 50 - 5}
    assert streamed == closed, "the stream and the batch query disagree"
    print(f"{len(streamed)} windows, equal to the batch query; {len(batch) - len(closed)} are still open.")
