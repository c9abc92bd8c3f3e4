"""Cuts: the durable logs between queries. contract.py says what a channel is; each implementation is a file."""

from penstock.engines.spark.channels.contract import Channel, ChannelBusyError, EventTime, Offset
from penstock.engines.spark.channels.embedded import EmbeddedChannel
from penstock.engines.spark.channels.factory import create_channel, open_channel
from penstock.engines.spark.channels.kafka import KafkaChannel

__all__ = [
    "Channel",
    "ChannelBusyError",
    "EmbeddedChannel",
    "EventTime",
    "KafkaChannel",
    "Offset",
    "create_channel",
    "open_channel",
]
