"""Nexmark with few events that span many windows."""

from __future__ import annotations

# 25 events per second: 3,000 events last two minutes. Auctions are open for up to 13 seconds.
SMALL = {"events_per_s": 25, "disorder_ms": 2_000, "in_flight_auctions": 10, "active_persons": 20}
