"""Nexmark query 8, monitor new users: the persons who registered and opened an auction in the same 10 seconds.

The sellers of each window are found by an aggregation, which emits a window when the watermark of auctions has passed
its end. A join finds those who registered in the same window. A result is final as soon as it is emitted.
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
COLUMNS = ("id", "name", "window_start")
_WINDOW = f"{WINDOW_S} seconds"


def registered(persons: DataFrame) -> DataFrame:
    return persons.select(F.window("date_time", _WINDOW).alias("window"), "id", "name")


def opened(auctions: DataFrame) -> DataFrame:
    return auctions.selectExpr("seller as id", "date_time")


def sellers(auctions: DataFrame) -> DataFrame:
    return auctions.groupBy(F.window("date_time", _WINDOW), "id").agg(F.count("*").alias("auctions"))


def new_users(registered: DataFrame, sellers: DataFrame) -> DataFrame:
    joined = registered.join(sellers, ["window", "id"])
    return joined.selectExpr("id", "name", "window.start as window_start")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q8")
    chosen = NexmarkSettings(**settings)
    persons = flow.source("persons", streams.source(streams.PERSON, rows, rows_per_s, chosen))
    persons.watermark("date_time", chosen.delay)
    auctions = flow.source("auctions", streams.source(streams.AUCTION, rows, rows_per_s, chosen))
    auctions.watermark("date_time", chosen.delay)
    openings = auctions.stateless("opened", opened, columns=["id", "date_time"])
    users = flow.keyed(
        "new_users",
        new_users,
        keys=["window", "id"],
        inputs=[
            persons.stateless("registered", registered, columns=["window", "id", "name"]),
            openings.keyed("sellers", sellers, keys=["id"], columns=["window", "id", "auctions"]),
        ],
        columns=COLUMNS,
    )
    users.sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, str, int]  # person, name, start of the window in ms


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the new sellers of all windows that the watermark of auctions has passed."""
    chosen = NexmarkSettings(**settings)
    auctions = streams.auctions(rows, chosen)
    end_ms = streams.watermark_ms([auction.at_ms for auction in auctions], chosen.disorder_ms)
    sold = {(auction.seller, auction.at_ms // (WINDOW_S * 1000)) for auction in auctions}
    expected: Counter[Row] = Counter()
    for person in streams.persons(rows, chosen):
        window = person.at_ms // (WINDOW_S * 1000)
        if (person.id, window) in sold and (window + 1) * WINDOW_S * 1000 <= end_ms:
            expected[person.id, person.name, window * WINDOW_S * 1000] += 1
    return expected


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((row["id"], row["name"], epoch_ms(row["window_start"])) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
