"""Parameters of the Nexmark generator. The defaults are those of the public benchmark where it has the parameter."""

from __future__ import annotations

from dataclasses import dataclass, fields

from penstock.dataflow.errors import DataflowError


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkSettings:
    """Parameters of the events. Event time does not depend on the rate at which the events arrive."""

    events_per_s: int = 1_000  # events per second of event time
    disorder_ms: int = 1_000  # event times are out of order by less than this
    hot_auction_ratio: int = 2  # one bid in this many is not for a hot auction
    hot_bidder_ratio: int = 4  # one bid in this many is not by a hot bidder
    hot_seller_ratio: int = 4  # one auction in this many is not by a hot seller
    in_flight_auctions: int = 100  # auctions that are open at the same time, on average
    active_persons: int = 1_000  # the latest persons, who bid and sell

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise DataflowError(f"Nexmark has {field.name}={value!r}; give a whole number of 1 or more.")

    @property
    def max_auction_ms(self) -> int:
        """No auction is open for longer. Lengths are uniform up to twice the time in which `in_flight_auctions` begin.

        >>> NexmarkSettings(events_per_s=1_000, in_flight_auctions=30).max_auction_ms  # 30 auctions in 500 events
        1000
        """
        return max(1, 2 * self.in_flight_auctions * 50 * 1000 // (3 * self.events_per_s))

    @property
    def delay(self) -> str:
        """The delay of a watermark on the time of events, with which no event is late."""
        return f"{self.disorder_ms} milliseconds"
