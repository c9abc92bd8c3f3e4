"""The Nexmark generator: persons, auctions and bids as functions of their numbers, many rows at once.

It follows the public definition of the benchmark (Tucker et al., "NEXMark: a benchmark for queries over data streams",
2002, and the generator of Apache Beam): proportions 1 : 3 : 46, hot auctions, bidders and sellers, references to a few
persons and auctions that do not exist yet, auctions that expire, log-uniform prices, and event-time disorder. The
random numbers are other ones, because each row must be computable without the previous rows.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from penstock.apps.nexmark import text
from penstock.apps.nexmark.numbering import (
    FIRST_ID,
    arrival_ms,
    auction_event,
    bid_event,
    event_ms,
    last_auction,
    last_person,
    person_event,
)
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.apps.seeded_random import random_bits_array

PERSON_SCHEMA = (
    "id bigint, name string, email string, credit_card string, city string, state string, date_time timestamp, "
    "extra string"
)
AUCTION_SCHEMA = (
    "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, date_time timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string"
)
BID_SCHEMA = "auction bigint, bidder bigint, price bigint, date_time timestamp, arrived timestamp, extra string"
FIRST_CATEGORY, CATEGORIES = 10, 5
_HOT_SPAN = 100  # one person or auction in this many is hot
_LEAD = 10  # a row may refer to so many persons or auctions that do not exist yet
_BID, _SECOND_BID, _AUCTION, _SECOND_AUCTION, _PERSON = (0x6E78_0000 + number for number in range(5))
_PRICE_STEPS = 1_024

Columns = dict[str, Any]


@functools.cache
def _tables() -> dict[str, text.TextTable]:
    return {
        "name": text.TextTable(text.NAMES),
        "email": text.emails(1),
        "credit_card": text.credit_cards(2),
        "city": text.TextTable(text.CITIES),
        "state": text.TextTable(text.STATES),
        "person": text.filler(3, 100),  # a person has 200 bytes, an auction 500 and a bid 100
        "item_name": text.filler(4, 20),
        "description": text.filler(5, 100),
        "auction": text.filler(6, 330),
        "bid": text.filler(7, 68),
    }


@functools.cache
def _price_steps() -> Any:
    """Return 100 * 10**(6 i / 1024) for i = 0 to 1024. Decimal arithmetic gives the same result on every machine."""
    with localcontext() as context:
        context.prec = 30
        factor = Decimal(10) ** (Decimal(6) / _PRICE_STEPS)
        return np.array([round(100 * factor**i) for i in range(_PRICE_STEPS + 1)], dtype=np.int64)


def prices(bits: Any) -> Any:
    """Return log-uniform prices from 1 to 1,000,000 dollars in cents, from 26 random bits each.

    >>> prices(np.array([0, 1 << 25, (1 << 26) - 1])).tolist()
    [100, 100000, 99999979]
    """
    steps = _price_steps()
    low = bits >> 16 & 0x3FF
    return steps[low] + ((steps[low + 1] - steps[low]) * (bits & 0xFFFF) >> 16)


def persons(k: Any, settings: NexmarkSettings) -> Columns:
    """Return the columns of the persons with these numbers."""
    bits = random_bits_array(k, _PERSON)
    tables = _tables()
    return {
        "id": FIRST_ID + k,
        "name": tables["name"].take(_slice(bits, 0, 16)),
        "email": tables["email"].take(_slice(bits, 16, 8)),
        "credit_card": tables["credit_card"].take(_slice(bits, 24, 8)),
        "city": tables["city"].take(_slice(bits, 32, 8)),
        "state": tables["state"].take(_slice(bits, 40, 8)),
        "date_time": _timestamps(event_ms(person_event(k), settings)),
        "extra": tables["person"].take(_slice(bits, 48, 8)),
    }


def auctions(k: Any, settings: NexmarkSettings) -> Columns:
    """Return the columns of the auctions with these numbers."""
    event = auction_event(k)
    bits, more = random_bits_array(k, _AUCTION), random_bits_array(k, _SECOND_AUCTION)
    tables = _tables()
    at_ms = event_ms(event, settings)
    initial_bid = prices(_slice(bits, 0, 26))
    is_hot = _slice(bits, 26, 16) % settings.hot_seller_ratio > 0
    return {
        "id": FIRST_ID + k,
        "item_name": tables["item_name"].take(_slice(bits, 42, 8)),
        "description": tables["description"].take(_slice(bits, 50, 8)),
        "initial_bid": initial_bid,
        "reserve": initial_bid + prices(_slice(more, 0, 26)),
        "date_time": _timestamps(at_ms),
        "expires": _timestamps(at_ms + 1 + (_slice(more, 26, 20) * settings.max_auction_ms >> 20)),
        "seller": FIRST_ID + np.where(is_hot, _hot(last_person(event)), _active_person(event, more, settings)),
        "category": FIRST_CATEGORY + _slice(bits, 58, 6) % CATEGORIES,
        "extra": tables["auction"].take(_slice(more, 46, 8)),
    }


def bids(k: Any, settings: NexmarkSettings) -> Columns:
    """Return the columns of the bids with these numbers. `arrived` is the clock that query 12 uses."""
    event = bid_event(k)
    bits, more = random_bits_array(k, _BID), random_bits_array(k, _SECOND_BID)
    last = last_auction(event)
    first = np.maximum(last - settings.in_flight_auctions, 0)
    in_flight = first + _slice(bits, 0, 24) % (last - first + 1 + _LEAD)
    on_hot_auction = _slice(bits, 24, 16) % settings.hot_auction_ratio > 0
    by_hot_bidder = _slice(bits, 40, 16) % settings.hot_bidder_ratio > 0
    # The hot bidder is another person than the hot seller.
    bidder = np.where(by_hot_bidder, _hot(last_person(event)) + 1, _active_person(event, more, settings))
    return {
        "auction": FIRST_ID + np.where(on_hot_auction, _hot(last), in_flight),
        "bidder": FIRST_ID + bidder,
        "price": prices(_slice(more, 0, 26)),
        "date_time": _timestamps(event_ms(event, settings)),
        "arrived": _timestamps(arrival_ms(event, settings)),
        "extra": _tables()["bid"].take(_slice(bits, 56, 8)),
    }


def _hot(last: Any) -> Any:
    return last // _HOT_SPAN * _HOT_SPAN


def _active_person(event: Any, bits: Any, settings: NexmarkSettings) -> Any:
    known = last_person(event) + 1
    active = np.minimum(known, settings.active_persons)
    return known - active + _slice(bits, 40, 24) % (active + _LEAD)


def _slice(bits: Any, start: int, size: int) -> Any:
    """Return some of the bits as signed integers; NumPy would turn a mixture of both into floats."""
    part = (bits >> np.uint64(start)) & np.uint64((1 << size) - 1)
    return part.astype(np.int64)


def _timestamps(at_ms: Any) -> Any:
    return at_ms.astype("datetime64[ms]")
