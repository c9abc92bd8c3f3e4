"""Winning bids, which queries 4 and 6 share: the highest price of each auction, once the auction has closed.

A bid is valid if it is placed between the beginning of its auction and the end (`expires`), both included. A price is
final when the watermark of auctions and bids has passed `expires`.

Structured Streaming has no retractions, so the maximum cannot be corrected as in Flink SQL. The dataflow emits each
auction once instead, as Apache Beam does: a join of bids and auctions with a time range, then the maximum per auction.
The event time of an auction is its end. An auction lasts at most `NexmarkSettings.max_auction_ms`, which bounds the
state of the join on both sides. A closed auction without a valid bid has no result.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.nexmark import streams
from penstock.apps.nexmark.settings import NexmarkSettings

COLUMNS = ("auction", "seller", "category", "expires", "price")


def opened(auctions: DataFrame) -> DataFrame:
    return auctions.selectExpr("id as auction", "seller", "category", "date_time as opens", "expires")


def placed(bids: DataFrame) -> DataFrame:
    return bids.select("auction", "price", "date_time")


def valid_bids(opened: DataFrame, placed: DataFrame, max_auction_ms: int = 0) -> DataFrame:
    """Join each bid with its auction, if it was open. The lower bound on `expires` only limits the state."""
    at, expires = F.col("date_time"), F.col("expires")
    longest = F.expr(f"interval {max_auction_ms} milliseconds")
    in_time = (at <= expires) & (at >= F.col("opens")) & (at >= expires - longest)
    return opened.join(placed, "auction").where(in_time).select(*COLUMNS)


def highest(valid: DataFrame) -> DataFrame:
    keys = ("auction", "seller", "category", "expires")
    return valid.groupBy(*keys).agg(F.max("price").alias("price"))


def stream(
    flow: penstock.Dataflow, rows: int | None, rows_per_s: float | None, settings: NexmarkSettings
) -> penstock.Stream:
    """Declare the sources and the operators up to the winning bids, with the columns COLUMNS."""
    auctions = flow.source("auctions", streams.source(streams.AUCTION, rows, rows_per_s, settings))
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, settings))
    openings = auctions.stateless("opened", opened, columns=["auction", "seller", "category", "opens", "expires"])
    openings.watermark("expires", f"{settings.max_auction_ms + settings.disorder_ms} milliseconds")
    placings = bids.stateless("placed", placed, columns=["auction", "price", "date_time"])
    placings.watermark("date_time", settings.delay)

    def join(opened: DataFrame, placed: DataFrame) -> DataFrame:
        return valid_bids(opened, placed, settings.max_auction_ms)

    valid = flow.keyed("valid_bids", join, keys=["auction"], inputs=[openings, placings], columns=COLUMNS)
    return valid.keyed("highest", highest, keys=["auction"], columns=COLUMNS)


class WinningBid(NamedTuple):
    """A closed auction and its highest price."""

    expires_ms: int
    auction: int
    seller: int
    category: int
    price: int


def closed_ms(rows: int, settings: NexmarkSettings) -> int:
    """Return the watermark behind the join after all rows.

    The watermark of the query is the smaller one of auctions and bids. A join passes on the time of the oldest row that
    may still match: a bid that waits for its auction is older by the longest duration of an auction. Spark passes on
    one millisecond less.
    """
    query_ms = min(
        streams.watermark_ms(
            [auction.expires_ms for auction in streams.auctions(rows, settings)],
            settings.max_auction_ms + settings.disorder_ms,
        ),
        streams.watermark_ms([bid.at_ms for bid in streams.bids(rows, settings)], settings.disorder_ms),
    )
    return query_ms - settings.max_auction_ms - 1


def winners(rows: int, settings: NexmarkSettings) -> list[WinningBid]:
    """Return the expected winning bids among the first `rows` events, by the time at which auctions close."""
    auctions = {auction.id: auction for auction in streams.auctions(rows, settings)}
    prices: dict[int, int] = {}
    for bid in streams.bids(rows, settings):
        auction = auctions.get(bid.auction)
        if auction is not None and auction.at_ms <= bid.at_ms <= auction.expires_ms:
            prices[auction.id] = max(prices.get(auction.id, 0), bid.price)
    end_ms = closed_ms(rows, settings)
    sold = [auctions[number] for number in prices if auctions[number].expires_ms <= end_ms]
    return sorted(WinningBid(sale.expires_ms, sale.id, sale.seller, sale.category, prices[sale.id]) for sale in sold)
