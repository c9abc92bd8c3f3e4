"""Topics of a cluster: whether they are there, how far they reach, made and deleted."""

from __future__ import annotations

import time
from typing import Any

from penstock.brokers.cluster import Cluster
from penstock.dataflow.errors import PenstockError

Offsets = dict[int, int]  # partition -> offset

_ANSWER_S = 5.0
_PATIENCE_S = 30.0
_PARTITIONS_FOR_S = 10.0  # a topic may be given more of them while it is read


class Topic:
    """One topic, asked through one client that is made when it is first needed."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._client: Any = None
        self._partitions: tuple[int, ...] = ()
        self._counted_at = float("-inf")

    def partitions(self, timeout_s: float = _ANSWER_S) -> tuple[int, ...]:
        """Its partitions; none where there is no such topic. Raises KafkaException where nobody answers."""
        if time.monotonic() - self._counted_at > _PARTITIONS_FOR_S:
            # All topics are asked for: a broker may create one that is asked for by its name.
            found = self._admin().list_topics(timeout=timeout_s).topics.get(self.name)
            self._partitions = tuple(sorted(found.partitions)) if found is not None and found.error is None else ()
            self._counted_at = time.monotonic()
        return self._partitions

    def required(self, what: str, create: str = "create it") -> tuple[int, ...]:
        """Its partitions, or one clear error: nobody answers, or there is no such topic."""
        from confluent_kafka import KafkaException

        try:
            partitions = self.partitions(_PATIENCE_S)
        except KafkaException:
            raise PenstockError(
                f"{what}: no Kafka broker answers at '{self.cluster.servers}' within {_PATIENCE_S:g} s; check the "
                "servers and the security options, or start one with 'penstock broker start'"
            ) from None
        if not partitions:
            self._counted_at = float("-inf")
            raise PenstockError(
                f"{what}: there is no topic '{self.name}' at '{self.cluster.servers}'; {create}, or check its name"
            )
        return partitions

    def ends(self, timeout_s: float = _ANSWER_S) -> Offsets:
        """Behind the last record of each partition that is committed."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.latest(), timeout_s)

    def starts(self, timeout_s: float = _ANSWER_S) -> Offsets:
        """The first record of each partition that is still there."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.earliest(), timeout_s)

    def create(self, partitions: int, **config: str) -> None:
        """Creates it unless it is there."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        new = NewTopic(self.name, num_partitions=partitions, config=config)
        try:
            self._admin().create_topics([new], operation_timeout=_PATIENCE_S)[self.name].result(_PATIENCE_S)
        except (KafkaException, TimeoutError) as error:
            if not isinstance(error, KafkaException) or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                why = error.args[0].str() if isinstance(error, KafkaException) else "no broker answers"
                raise PenstockError(
                    f"topic '{self.name}' cannot be created at '{self.cluster.servers}': {why}"
                ) from None
        deadline = time.monotonic() + _PATIENCE_S
        while len(self.partitions()) < partitions and time.monotonic() < deadline:  # brokers hear of it a moment later
            self._counted_at = float("-inf")
            time.sleep(0.02)

    def delete(self) -> None:
        """Deletes it; one that is not there is deleted already. Raises KafkaException where nobody answers."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._admin().delete_topics([self.name], request_timeout=_ANSWER_S)[self.name].result(2 * _ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise

    def forget(self, before: Offsets) -> None:
        """Asks for the deletion of what lies before these offsets, and does not wait for it."""
        from confluent_kafka import TopicPartition

        parts = [TopicPartition(self.name, partition, offset) for partition, offset in before.items()]
        if parts:
            self._admin().delete_records(parts, request_timeout=_PATIENCE_S)

    def _offsets(self, spec: Any, timeout_s: float) -> Offsets:
        from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

        asked = {TopicPartition(self.name, partition): spec for partition in self.partitions(timeout_s)}
        if not asked:
            return {}
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._admin().list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
            )
            try:
                return {part.partition: future.result(2 * timeout_s).offset for part, future in found.items()}
            except KafkaException as error:
                # Of a partition that is new, or whose broker has just come back; it passes.
                leaderless = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
                if error.args[0].code() not in leaderless or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._client is None:
            self._client = AdminClient(self.cluster.config())
        return self._client
