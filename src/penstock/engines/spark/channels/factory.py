"""Which implementation a cut has: new cuts have the one that was chosen, old ones keep what they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels.contract import Channel, EventTime
from penstock.engines.spark.channels.embedded import EmbeddedChannel
from penstock.engines.spark.channels.kafka import KafkaChannel
from penstock.engines.spark.channels.logged import read_about


def create_channel(
    folder: Path,
    schema: str,
    event_time: EventTime | None,
    *,
    keys: tuple[str, ...],
    kafka: KafkaCluster | None,
    **how: Any,
) -> Channel:
    """In a Kafka topic where a cluster is given, else in the folder itself. `keys` are those of its readers."""
    if kafka is None:
        return EmbeddedChannel.create(folder, schema, event_time, **how)
    return KafkaChannel.create(folder, schema, event_time, cluster=kafka, keys=keys, **how)


def open_channel(folder: Path, **how: Any) -> Channel:
    kind = KafkaChannel if "kafka" in read_about(folder) else EmbeddedChannel
    return kind(folder, **how)
