"""Nexmark query 3, local item suggestion: who sells in Oregon, Idaho or California in category 10, and which auctions.

The join of persons and auctions is unbounded, as in the specification: a person may sell at any time, so the state
keeps all selected persons and auctions. There is no watermark, and every result is final once both rows have arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink
from penstock.apps.nexmark import streams
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sinks import Sink

STATES = ("OR", "ID", "CA")
CATEGORY = 10


def local(persons: DataFrame) -> DataFrame:
    return persons.where(persons.state.isin(*STATES)).selectExpr("id as seller", "name", "city", "state")


def items(auctions: DataFrame) -> DataFrame:
    return auctions.where(f"category = {CATEGORY}").select("seller", "id")


def suggest(local: DataFrame, items: DataFrame) -> DataFrame:
    return local.join(items, "seller").select("name", "city", "state", "id")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q3")
    chosen = NexmarkSettings(**settings)
    persons = flow.source("persons", streams.source(streams.PERSON, rows, rows_per_s, chosen))
    auctions = flow.source("auctions", streams.source(streams.AUCTION, rows, rows_per_s, chosen))
    suggestions = flow.keyed(
        "suggest",
        suggest,
        keys=["seller"],
        inputs=[
            persons.stateless("local", local, columns=["seller", "name", "city", "state"]),
            auctions.stateless("items", items, columns=["seller", "id"]),
        ],
        output_mode="append",
        columns=["name", "city", "state", "id"],
    )
    suggestions.sink("out", default_sink(output, rows))
    return flow


Row = tuple[str, str, str, int]  # name, city, state, auction


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the suggestions from the first `rows` events. Every person has one row, so each auction occurs once."""
    chosen = NexmarkSettings(**settings)
    local = {person.id: person for person in streams.persons(rows, chosen) if person.state in STATES}
    sales = [auction for auction in streams.auctions(rows, chosen) if auction.category == CATEGORY]
    sellers = [(local[auction.seller], auction) for auction in sales if auction.seller in local]
    return Counter((seller.name, seller.city, seller.state, auction.id) for seller, auction in sellers)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((row["name"], row["city"], row["state"], row["id"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
