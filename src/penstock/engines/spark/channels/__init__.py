"""Cuts: the durable logs between queries. contract.py says what a channel is; each implementation is a file."""

from penstock.engines.spark.channels.contract import Channel, EventTime, Offset
from penstock.engines.spark.channels.embedded import EmbeddedChannel

__all__ = ["Channel", "EmbeddedChannel", "EventTime", "Offset"]
