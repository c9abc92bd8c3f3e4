"""Nexmark query 4, average price for a category: the mean winning price of closed auctions, by category.

The mean covers the auctions that closed in a sliding window of 10 seconds, updated every 5 seconds, as in Apache Beam.
Flink SQL computes one mean of all auctions and corrects it with retractions, which Structured Streaming does not have.
The dataflow is a join with a time range followed by two aggregations, all in append mode; see `winning_bids`. The mean
is rounded down to a whole number. A window is final when the watermark has passed its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink
from penstock.apps.nexmark import winning_bids
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sinks import Sink

WINDOW_S, SLIDE_S = 10, 5
COLUMNS = ("window_end", "category", "average", "auctions")


def average(winners: DataFrame) -> DataFrame:
    windows = F.window("expires", f"{WINDOW_S} seconds", f"{SLIDE_S} seconds")
    sums = winners.groupBy(windows, "category").agg(F.sum("price").alias("total"), F.count("*").alias("auctions"))
    return sums.selectExpr("window.end as window_end", "category", "total div auctions as average", "auctions")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q4")
    winners = winning_bids.stream(flow, rows, rows_per_s, NexmarkSettings(**settings))
    winners.keyed("average", average, keys=["category"], columns=COLUMNS).sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int]  # end of the window in ms, category, mean price, number of auctions


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the means of all windows that the watermark has passed."""
    chosen = NexmarkSettings(**settings)
    end_ms = winning_bids.closed_ms(rows, chosen)
    prices: dict[tuple[int, int], list[int]] = {}
    for winner in winning_bids.winners(rows, chosen):
        first_end_ms = (winner.expires_ms // (SLIDE_S * 1000) + 1) * SLIDE_S * 1000
        for window_end_ms in range(first_end_ms, first_end_ms + WINDOW_S * 1000, SLIDE_S * 1000):
            if window_end_ms <= end_ms:
                prices.setdefault((window_end_ms, winner.category), []).append(winner.price)
    return Counter({(*key, sum(values) // len(values), len(values)): 1 for key, values in prices.items()})


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((epoch_ms(row["window_end"]), row["category"], row["average"], row["auctions"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
