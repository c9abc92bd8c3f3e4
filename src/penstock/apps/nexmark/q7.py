"""Nexmark query 7, highest bid: the bids with the highest price of each window of 10 seconds.

The maximum of each window is joined with the bids of the window, so that equal bids are all found. Two sources read the
same bids, because Structured Streaming reads both sides of a self-join from the source. The end of a window belongs to
the next window; Flink SQL counts it to both. A window is final when the watermark has passed its end.
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

WINDOW_S = 10
COLUMNS = ("auction", "bidder", "price", "date_time")
_WINDOW = f"{WINDOW_S} seconds"


def windowed(bids: DataFrame) -> DataFrame:
    """Add the window. It becomes the event time, so the time of the bid must lose this role: Spark allows only one."""
    window, plain_time = F.window("date_time", _WINDOW), F.timestamp_micros(F.unix_micros("date_time"))
    return bids.select(window.alias("window"), "auction", "bidder", "price", plain_time.alias("date_time"))


def maximum(windowed: DataFrame) -> DataFrame:
    return windowed.groupBy("window").agg(F.max("price").alias("price"))


def highest(maximum: DataFrame, windowed: DataFrame) -> DataFrame:
    return maximum.join(windowed, ["window", "price"]).select(*COLUMNS)


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q7")
    chosen = NexmarkSettings(**settings)
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, chosen))
    bids.watermark("date_time", chosen.delay)
    candidates = flow.source("candidates", streams.source(streams.BID, rows, rows_per_s, chosen))
    candidates.watermark("date_time", chosen.delay)
    maxima = bids.stateless("windowed", windowed, columns=["window", *COLUMNS]).keyed(
        "maximum", maximum, keys=["window"], columns=["window", "price"]
    )
    winners = flow.keyed(
        "highest",
        highest,
        keys=["window", "price"],
        inputs=[maxima, candidates.stateless("windowed_candidates", windowed, columns=["window", *COLUMNS])],
        columns=COLUMNS,
    )
    winners.sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int]  # auction, bidder, price, time in ms


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the highest bids of all windows that the watermark has passed."""
    chosen = NexmarkSettings(**settings)
    bids = streams.bids(rows, chosen)
    end_ms = streams.watermark_ms([bid.at_ms for bid in bids], chosen.disorder_ms)
    maxima: dict[int, int] = {}
    for bid in bids:
        window = bid.at_ms // (WINDOW_S * 1000)
        maxima[window] = max(maxima.get(window, 0), bid.price)
    final = {window: price for window, price in maxima.items() if (window + 1) * WINDOW_S * 1000 <= end_ms}
    winners = [bid for bid in bids if final.get(bid.at_ms // (WINDOW_S * 1000)) == bid.price]
    return Counter((bid.auction, bid.bidder, bid.price, bid.at_ms) for bid in winners)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((row["auction"], row["bidder"], row["price"], epoch_ms(row["date_time"])) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
