"""Nexmark query 1, currency conversion: all bids with the price in euros, at 0.908 euros per dollar.

The price is a decimal number with three fractional digits, so the result is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink
from penstock.apps.nexmark import streams
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sinks import Sink

EUROS_PER_DOLLAR = Decimal("0.908")
COLUMNS = ("auction", "bidder", "price", "date_time", "extra")


def convert(bids: DataFrame) -> DataFrame:
    euros = (F.col("price") * F.lit(EUROS_PER_DOLLAR)).cast("decimal(23, 3)")
    return bids.select("auction", "bidder", euros.alias("price"), "date_time", "extra")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q1")
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, NexmarkSettings(**settings)))
    bids.stateless("convert", convert, columns=COLUMNS).sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int, str]  # auction, bidder, thousandths of the price, time in ms, extra


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return all bids among the first `rows` events with the converted price: 908 thousandths per unit."""
    bids = streams.bids(rows, NexmarkSettings(**settings))
    return Counter((bid.auction, bid.bidder, 908 * bid.price, bid.at_ms, bid.extra) for bid in bids)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter(
        (row["auction"], row["bidder"], int(row["price"] * 1000), epoch_ms(row["date_time"]), row["extra"])
        for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
