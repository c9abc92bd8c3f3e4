"""Nexmark query 5, hot items: the auctions with the most bids in the last 10 seconds, updated every 2 seconds.

Two aggregations: the bids per auction and window, then the maximum per window. Auctions with equal counts all win. A
window is final when the watermark has passed its end.
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
from penstock.apps.nexmark import streams
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sinks import Sink

WINDOW_S, SLIDE_S = 10, 2
COLUMNS = ("auction", "num", "window_end")


def count(bids: DataFrame) -> DataFrame:
    windows = F.window("date_time", f"{WINDOW_S} seconds", f"{SLIDE_S} seconds")
    return bids.groupBy(windows, "auction").agg(F.count("*").alias("num"))


def hottest(counts: DataFrame) -> DataFrame:
    """Return the auctions whose count is the maximum of their window."""
    auctions = F.collect_list(F.struct("num", "auction")).alias("auctions")
    maxima = counts.groupBy("window").agg(F.max("num").alias("num"), auctions)
    hot = maxima.select("window", F.explode(F.expr("filter(auctions, auction -> auction.num = num)")).alias("hot"))
    return hot.selectExpr("hot.auction as auction", "hot.num as num", "window.end as window_end")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q5")
    chosen = NexmarkSettings(**settings)
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, chosen))
    (
        bids.watermark("date_time", chosen.delay)
        .keyed("count", count, keys=["auction"], columns=["window", "auction", "num"])
        .keyed("hottest", hottest, keys=["window"], columns=COLUMNS)
        .sink("out", default_sink(output, rows))
    )
    return flow


Row = tuple[int, int, int]  # auction, number of bids, end of the window in ms


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the hottest auctions of all windows that the watermark has passed."""
    chosen = NexmarkSettings(**settings)
    bids = streams.bids(rows, chosen)
    end_ms = streams.watermark_ms([bid.at_ms for bid in bids], chosen.disorder_ms)
    windows: dict[int, Counter[int]] = {}
    for bid in bids:
        first_end_ms = (bid.at_ms // (SLIDE_S * 1000) + 1) * SLIDE_S * 1000
        for window_end_ms in range(first_end_ms, first_end_ms + WINDOW_S * 1000, SLIDE_S * 1000):
            windows.setdefault(window_end_ms, Counter())[bid.auction] += 1
    return Counter(
        (auction, count, window_end_ms)
        for window_end_ms, counts in windows.items()
        for auction, count in counts.items()
        if window_end_ms <= end_ms and count == max(counts.values())
    )


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((row["auction"], row["num"], epoch_ms(row["window_end"])) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
