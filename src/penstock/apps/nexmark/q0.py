"""Nexmark query 0, pass-through: all bids, unchanged. It measures the cost of source, engine and sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink
from penstock.apps.nexmark import streams
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sinks import Sink

COLUMNS = ("auction", "bidder", "price", "date_time", "extra")


def pass_through(bids: DataFrame) -> DataFrame:
    return bids.select(*COLUMNS)


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q0")
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, NexmarkSettings(**settings)))
    bids.stateless("pass_through", pass_through, columns=COLUMNS).sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int, str]  # auction, bidder, price, time in ms, extra


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return all bids among the first `rows` events."""
    bids = streams.bids(rows, NexmarkSettings(**settings))
    return Counter((bid.auction, bid.bidder, bid.price, bid.at_ms, bid.extra) for bid in bids)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter(
        (row["auction"], row["bidder"], row["price"], epoch_ms(row["date_time"]), row["extra"]) for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
