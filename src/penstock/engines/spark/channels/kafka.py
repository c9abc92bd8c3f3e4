"""The Kafka channel: its folder in the run directory holds the log, and a topic holds the rows."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.channels.logged_channel import (
    DESCRIPTION_FILE,
    LoggedChannel,
    TopicDescription,
    read_description,
    write_description,
)
from penstock.engines.spark.channels.topic_store import TopicStore

KEY_GROUPS = 32


class KafkaChannel(LoggedChannel):
    def __init__(self, folder: Path) -> None:
        topic = read_description(folder).kafka
        if topic is None:
            raise PenstockError(f"channel '{folder}' is not a Kafka channel: its '{DESCRIPTION_FILE}' names no topic")
        super().__init__(folder, _store(topic))

    @staticmethod
    def create(
        folder: Path,
        schema: str,
        *,
        cluster: KafkaCluster,
        keys: tuple[str, ...] = (),
        groups: int = KEY_GROUPS,
    ) -> KafkaChannel:
        """Create a channel with a new topic, which has one partition per key group.

        Rows with equal `keys` are in one group. Raises PenstockError if the topic cannot be created.
        """
        topic = TopicDescription(
            bootstrap_servers=cluster.bootstrap_servers,
            options=dict(cluster.options),  # secrets among them are names of environment variables
            topic=f"penstock-{uuid4().hex[:8]}-{folder.name}",
            groups=groups,
            keys=keys,
        )
        write_description(folder, schema, topic)  # first: an unrecorded topic would never be deleted
        try:
            _store(topic).create()
        except PenstockError:
            (folder / DESCRIPTION_FILE).unlink()
            raise
        return KafkaChannel(folder)


def _store(topic: TopicDescription) -> TopicStore:
    return TopicStore(KafkaCluster.of(topic.bootstrap_servers, topic.options), topic.topic, topic.groups, topic.keys)
