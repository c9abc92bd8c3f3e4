"""Nexmark query 11, user sessions: the number of bids of each user in each session, which ends after 10 seconds.

Two bids belong to one session if the second is at most 10 seconds after the first. A session is final when the
watermark has passed its end, which is 10 seconds after its last bid.
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

GAP_S = 10
COLUMNS = ("bidder", "bid_count", "start_time", "end_time")


def sessions(bids: DataFrame) -> DataFrame:
    window = F.session_window("date_time", f"{GAP_S} seconds").alias("session")
    counts = bids.groupBy("bidder", window).agg(F.count("*").alias("bid_count"))
    return counts.selectExpr("bidder", "bid_count", "session.start as start_time", "session.end as end_time")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q11")
    chosen = NexmarkSettings(**settings)
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, chosen))
    bids.watermark("date_time", chosen.delay)
    bids.keyed("sessions", sessions, keys=["bidder"], columns=COLUMNS).sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int, int, int]  # bidder, number of bids, start and end of the session in ms


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return all sessions that the watermark has passed."""
    chosen = NexmarkSettings(**settings)
    bids = streams.bids(rows, chosen)
    end_ms = streams.watermark_ms([bid.at_ms for bid in bids], chosen.disorder_ms)
    sessions = user_sessions([(bid.bidder, bid.at_ms) for bid in bids])
    return Counter(session for session in sessions if session[3] <= end_ms)


def user_sessions(bids: list[tuple[int, int]]) -> list[Row]:
    """Return the sessions of all users, from pairs of a user and a time in milliseconds.

    >>> user_sessions([(1, 0), (2, 5_000), (1, 20_001), (1, 10_000)])
    [(1, 2, 0, 20000), (1, 1, 20001, 30001), (2, 1, 5000, 15000)]
    """
    sessions: list[Row] = []
    for bidder, at_ms in sorted(bids):
        if sessions and sessions[-1][0] == bidder and at_ms <= sessions[-1][3]:
            _, count, start_ms, _ = sessions.pop()
        else:
            count, start_ms = 0, at_ms
        sessions.append((bidder, count + 1, start_ms, at_ms + GAP_S * 1000))
    return sessions


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter(
        (row["bidder"], row["bid_count"], epoch_ms(row["start_time"]), epoch_ms(row["end_time"])) for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
