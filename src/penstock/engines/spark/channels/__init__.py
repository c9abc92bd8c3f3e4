"""Channels: the durable logs between queries. `contract.py` defines the contract; each implementation has one file."""

from penstock.engines.spark.channels.contract import Append, Channel, ChannelUnavailableError
from penstock.engines.spark.channels.embedded import EmbeddedChannel
from penstock.engines.spark.channels.factory import create_channel, open_channel
from penstock.engines.spark.channels.kafka import KafkaChannel

__all__ = [
    "Append",
    "Channel",
    "ChannelUnavailableError",
    "EmbeddedChannel",
    "KafkaChannel",
    "create_channel",
    "open_channel",
]
