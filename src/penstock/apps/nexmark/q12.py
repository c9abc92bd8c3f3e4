"""Nexmark query 12, processing-time windows: the number of bids of each user in each 10 seconds of processing time.

Processing time differs from run to run, so a result could be neither repeated after a failure nor checked. The dataflow
uses a clock that is a function of the event number instead: `arrived`, the nominal time at which the event arrives at
`NexmarkSettings.events_per_s`. The clock has the properties of processing time that matter to the query. It follows the
order of arrival, whatever the event times are, and it never goes back, so the watermark has no delay and no row is
late. A window is final when a row of a later window has arrived.
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
COLUMNS = ("bidder", "bid_count", "start_time", "end_time")


def count(bids: DataFrame) -> DataFrame:
    counts = bids.groupBy("bidder", F.window("arrived", f"{WINDOW_S} seconds")).agg(F.count("*").alias("bid_count"))
    return counts.selectExpr("bidder", "bid_count", "window.start as start_time", "window.end as end_time")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q12")
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, NexmarkSettings(**settings)))
    bids.watermark("arrived", "0 seconds")
    bids.keyed("count", count, keys=["bidder"], columns=COLUMNS).sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int]  # bidder, number of bids, start and end of the window in ms


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the counts of all windows that ended before the last bid arrived."""
    bids = streams.bids(rows, NexmarkSettings(**settings))
    end_ms = streams.watermark_ms([bid.arrived_ms for bid in bids], 0)
    counts = Counter((bid.bidder, bid.arrived_ms // (WINDOW_S * 1000)) for bid in bids)
    rows_by_window = [
        (bidder, count, window * WINDOW_S * 1000, (window + 1) * WINDOW_S * 1000)
        for (bidder, window), count in counts.items()
    ]
    return Counter(row for row in rows_by_window if row[3] <= end_ms)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter(
        (row["bidder"], row["bid_count"], epoch_ms(row["start_time"]), epoch_ms(row["end_time"])) for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
