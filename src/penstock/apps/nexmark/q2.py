"""Nexmark query 2, selection: the bids for one auction in 123, with their prices."""

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

ONE_IN = 123


def select(bids: DataFrame) -> DataFrame:
    return bids.where(f"auction % {ONE_IN} = 0").select("auction", "price")


def flow(
    output: Sink | str | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **settings: int
) -> penstock.Dataflow:
    """Return the dataflow on `rows` events at `rows_per_s`; `settings` are those of the generator."""
    flow = penstock.Dataflow("q2")
    bids = flow.source("bids", streams.source(streams.BID, rows, rows_per_s, NexmarkSettings(**settings)))
    bids.stateless("select", select, columns=["auction", "price"]).sink("out", default_sink(output, rows))
    return flow


Row = tuple[int, int]  # auction, price


def oracle(rows: int, **settings: int) -> Counter[Row]:
    """Return the selected bids among the first `rows` events."""
    bids = streams.bids(rows, NexmarkSettings(**settings))
    return Counter((bid.auction, bid.price) for bid in bids if bid.auction % ONE_IN == 0)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    return Counter((row["auction"], row["price"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **settings: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **settings), actual(output))
