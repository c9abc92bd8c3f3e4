"""The sequence of Nexmark events: 50 events are one person, then three auctions, then 46 bids, and so on.

Event n has the same content in every run. Persons, auctions and bids are three sources, and row k of a source is the
k-th event of its kind. The functions take and return integers or NumPy arrays.
"""

from __future__ import annotations

from typing import Any

from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.apps.seeded_random import random_bits_array

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1_000  # the first person and the first auction
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_DISORDER_SEED = 0x6E78_6D74


def person_event(k: Any) -> Any:
    """Return the number of the event that creates person k.

    >>> person_event(2)
    100
    """
    return k * EVENTS


def auction_event(k: Any) -> Any:
    """Return the number of the event that opens auction k.

    >>> [auction_event(k) for k in range(4)]
    [1, 2, 3, 51]
    """
    return k // AUCTIONS * EVENTS + PERSONS + k % AUCTIONS


def bid_event(k: Any) -> Any:
    """Return the number of the event that places bid k.

    >>> [bid_event(k) for k in (0, 45, 46)]
    [4, 49, 54]
    """
    return k // BIDS * EVENTS + PERSONS + AUCTIONS + k % BIDS


def last_person(event: Any) -> Any:
    """Return the latest person that exists at an event."""
    return event // EVENTS


def last_auction(event: Any) -> Any:
    """Return the latest auction that exists at an event that is an auction or a bid.

    >>> [last_auction(event) for event in (1, 3, 4, 49, 51)]
    [0, 2, 2, 2, 3]
    """
    offset = event % EVENTS - PERSONS
    return event // EVENTS * AUCTIONS + (offset < AUCTIONS) * offset + (offset >= AUCTIONS) * (AUCTIONS - 1)


def rows_of_kind(first: int, size: int, events: int) -> int:
    """Return how many of the first `events` events have a position from `first` to `first + size - 1` in their fifty.

    >>> [rows_of_kind(PERSONS, AUCTIONS, events) for events in (0, 1, 3, 50, 53)]
    [0, 0, 2, 3, 5]
    """
    return events // EVENTS * size + min(max(events % EVENTS - first, 0), size)


def arrival_ms(event: Any, settings: NexmarkSettings) -> Any:
    """Return the nominal time at which an event arrives, in milliseconds since 1970. It never decreases."""
    return START_MS + event * 1000 // settings.events_per_s


def event_ms(event: Any, settings: NexmarkSettings) -> Any:
    """Return the event time, in milliseconds since 1970. It is out of order by less than `disorder_ms`."""
    disorder = random_bits_array(event, _DISORDER_SEED) % settings.disorder_ms
    return arrival_ms(event, settings) + disorder.astype("int64")
