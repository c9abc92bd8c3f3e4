"""The Kafka channel: its log lies in its folder, beside the checkpoints that go with it, and its rows in a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.channels.contract import EventTime
from penstock.engines.spark.channels.logged import FILE, LoggedChannel, read_about, write_about
from penstock.engines.spark.channels.topic import TopicPlace

GROUPS = 32


class KafkaChannel(LoggedChannel):
    def __init__(self, folder: Path, batch_s: float = 2.0, most_rows: int | None = None) -> None:
        super().__init__(folder, _place(read_about(folder)["kafka"]), batch_s, most_rows)

    @staticmethod
    def create(
        folder: Path,
        schema: str,
        event_time: EventTime | None,
        *,
        cluster: KafkaCluster,
        keys: tuple[str, ...] = (),
        groups: int = GROUPS,
        **how: Any,
    ) -> KafkaChannel:
        """A topic of its own, as many partitions as key groups; rows of the same `keys` are in the same group."""
        about = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "options": dict(cluster.options),  # secrets among them are names
            "topic": f"penstock-{uuid4().hex[:8]}-{folder.name}",
            "groups": groups,
            "keys": keys,
        }
        write_about(folder, schema, event_time, kafka=about)  # first: a topic that nobody knows of is never deleted
        try:
            _place(about).create()
        except PenstockError:
            (folder / FILE).unlink()
            raise
        return KafkaChannel(folder, **how)


def _place(about: dict[str, Any]) -> TopicPlace:
    cluster = KafkaCluster.of(about["bootstrap_servers"], about["options"])
    return TopicPlace(cluster, about["topic"], about["groups"], tuple(about["keys"]))
