"""The three streams of Nexmark, each as the source of a dataflow and as rows for an oracle.

`rows` and `rows_per_s` count events. A source of bids therefore has 46 of every 50 rows, and 46/50 of the rate.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import penstock
from penstock.apps.input_output import ROWS_PER_S
from penstock.apps.nexmark import generator
from penstock.apps.nexmark.numbering import AUCTIONS, BIDS, EVENTS, PERSONS, rows_of_kind
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.sources import Source

Columns = Callable[..., generator.Columns]  # takes an array of numbers, and the settings


@dataclass(frozen=True, slots=True)
class EventKind:
    """One of the three kinds of events, and its position in every 50 events."""

    first: int
    size: int
    columns: Columns
    schema: str

    def rows(self, events: int) -> int:
        """Return how many of the first `events` events are of this kind."""
        return rows_of_kind(self.first, self.size, events)


PERSON = EventKind(0, PERSONS, generator.persons, generator.PERSON_SCHEMA)
AUCTION = EventKind(PERSONS, AUCTIONS, generator.auctions, generator.AUCTION_SCHEMA)
BID = EventKind(PERSONS + AUCTIONS, BIDS, generator.bids, generator.BID_SCHEMA)


def source(kind: EventKind, rows: int | None, rows_per_s: float | None, settings: NexmarkSettings) -> Source:
    """Return the source of one kind of events; all at once without a rate, endless without a number of rows."""
    rate = ROWS_PER_S if rows is None and rows_per_s is None else rows_per_s
    return penstock.generate(
        functools.partial(kind.columns, settings=settings),
        schema=kind.schema,
        rows=None if rows is None else kind.rows(rows),
        rows_per_s=None if rate is None else rate * kind.size / EVENTS,
        vectorised=True,
    )


class Person(NamedTuple):
    id: int
    name: str
    city: str
    state: str
    at_ms: int


class Auction(NamedTuple):
    id: int
    at_ms: int
    expires_ms: int
    seller: int
    category: int


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    at_ms: int
    arrived_ms: int
    extra: str


def persons(events: int, settings: NexmarkSettings) -> list[Person]:
    """Return the persons among the first `events` events."""
    return [Person(*row) for row in _rows(PERSON, events, settings, "id", "name", "city", "state", "date_time")]


def auctions(events: int, settings: NexmarkSettings) -> list[Auction]:
    """Return the auctions among the first `events` events."""
    return [
        Auction(*row) for row in _rows(AUCTION, events, settings, "id", "date_time", "expires", "seller", "category")
    ]


def bids(events: int, settings: NexmarkSettings) -> list[Bid]:
    """Return the bids among the first `events` events."""
    names = ("auction", "bidder", "price", "date_time", "arrived", "extra")
    return [Bid(*row) for row in _rows(BID, events, settings, *names)]


def _rows(kind: EventKind, events: int, settings: NexmarkSettings, *names: str) -> Any:
    columns = kind.columns(np.arange(kind.rows(events)), settings)
    return zip(*(_values(columns[name]) for name in names), strict=True)


def _values(column: Any) -> list[Any]:
    """Return the values of a column, with times in milliseconds."""
    if isinstance(column, np.ndarray):
        is_time = np.issubdtype(column.dtype, np.datetime64)
        values: list[Any] = (column.astype(np.int64) if is_time else column).tolist()
        return values
    strings: list[Any] = column.to_pylist()
    return strings


def watermark_ms(times_ms: list[int], delay_ms: int) -> int:
    """Return the watermark of a source after its last row."""
    return max(times_ms, default=0) - delay_ms
