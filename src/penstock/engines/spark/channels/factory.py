"""Creates and opens channels. New channels get the chosen implementation; existing ones keep theirs."""

from __future__ import annotations

from pathlib import Path

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels.contract import Channel
from penstock.engines.spark.channels.embedded import EmbeddedChannel
from penstock.engines.spark.channels.kafka import KafkaChannel
from penstock.engines.spark.channels.logged_channel import read_description


def create_channel(folder: Path, schema: str, *, keys: tuple[str, ...], kafka: KafkaCluster | None) -> Channel:
    """Create a channel in a Kafka topic if a cluster is given, else in the folder.

    `schema` is the schema of the rows as JSON of Spark; `keys` are the key columns by which the rows are read.
    """
    if kafka is None:
        return EmbeddedChannel.create(folder, schema)
    return KafkaChannel.create(folder, schema, cluster=kafka, keys=keys)


def open_channel(folder: Path) -> Channel:
    return EmbeddedChannel(folder) if read_description(folder).kafka is None else KafkaChannel(folder)
