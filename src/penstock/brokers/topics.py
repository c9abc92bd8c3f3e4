"""Topics of a Kafka cluster: existence, partitions, offsets, creation and deletion."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

from penstock.brokers.cluster import KafkaCluster, has_no_leader, is_permanent
from penstock.dataflow.errors import PenstockError

Offsets = dict[int, int]  # partition -> offset

_POLL_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 30.0
_PARTITIONS_EXPIRE_S = 2.0  # a topic may get more partitions while it is read, or be deleted and created again
_DELETED_AFTER_S = 10.0  # a broker that has just restarted may not know its topics yet
_LOG = logging.getLogger("penstock.brokers")


class Topic:
    """One topic, with an admin client that is created at the first request."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.id: str | None = None  # changes if the topic is created again; known once the partitions are known
        self._client: Any = None
        self._client_error = ""  # the latest one; the client goes on trying
        self._partitions: tuple[int, ...] = ()
        self._counted_at = float("-inf")
        self._missing_since_s: float | None = None
        self._may_delete = True

    def partitions(self, timeout_s: float = _POLL_TIMEOUT_S) -> tuple[int, ...]:
        """Return the partitions, or () if there is no such topic.

        Raises:
            KafkaException: No broker answers.
        """
        if time.monotonic() - self._counted_at > _PARTITIONS_EXPIRE_S:
            since, self._missing_since_s = self._missing_since_s, None
            description = self._described(timeout_s)
            if description is None:
                self._missing_since_s = since or time.monotonic()
                return ()
            self._partitions = tuple(sorted(part.id for part in description.partitions))
            self.id = str(description.topic_id)
            self._counted_at = time.monotonic()
        return self._partitions

    def required(self, what: str, create: str | None = None) -> tuple[int, ...]:
        """Return the partitions of a topic that must exist.

        Args:
            what: The user of the topic, for messages, such as "source 'lines'".
            create: How to create the topic, for messages.

        Raises:
            PenstockError: No broker answers, the access is refused, or there is no such topic.
        """
        from confluent_kafka import KafkaException

        try:
            partitions = self.partitions(_REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            cause = error.args[0] if isinstance(error, KafkaException) else None
            if cause is not None and is_permanent(cause):
                raise PenstockError(
                    f"{what}: the broker refuses access to topic '{self.name}': {cause.str()}; check the permissions."
                ) from None
            raise PenstockError(
                f"{what}: No Kafka broker answers at '{self.cluster.bootstrap_servers}' within "
                f"{_REQUEST_TIMEOUT_S:g} s{self._error_suffix()}; check bootstrap_servers and the security options, "
                "or start a broker with 'penstock broker start'."
            ) from None
        if not partitions:
            create = create or f"create it, for example with 'penstock broker topic {self.name} --partitions 4'"
            raise PenstockError(
                f"{what}: There is no topic '{self.name}' at '{self.cluster.bootstrap_servers}'; {create}, "
                "or check its name."
            )
        return partitions

    @property
    def missing(self) -> bool:
        """Whether the latest answer of a broker was that there is no such topic."""
        return self._missing_since_s is not None

    def require_exists(self, timeout_s: float = _POLL_TIMEOUT_S) -> None:
        """Check that the topic was not deleted. A broker that does not answer is not an error.

        Raises:
            PenstockError: Brokers have answered for several seconds that there is no such topic.
        """
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException, TimeoutError):
            self.partitions(timeout_s)
        since_s = self._missing_since_s
        if since_s is not None and time.monotonic() - since_s > _DELETED_AFTER_S:
            raise PenstockError(
                f"Topic '{self.name}' was deleted at '{self.cluster.bootstrap_servers}'; create it again if it is only "
                "written to, else start a new run in another directory."
            )

    def ends(self, timeout_s: float = _POLL_TIMEOUT_S) -> Offsets:
        """Return the offset after the last committed record of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.latest(), timeout_s)

    def starts(self, timeout_s: float = _POLL_TIMEOUT_S) -> Offsets:
        """Return the offset of the first retained record of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.earliest(), timeout_s)

    def create(self, partitions: int, **config: str) -> int:
        """Create the topic if it does not exist, and return its number of partitions.

        Args:
            partitions: Number of partitions of a new topic.
            config: Configuration of a new topic, such as `retention.ms`.

        Raises:
            PenstockError: The topic cannot be created.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        new = NewTopic(self.name, num_partitions=partitions, config=config)
        try:
            self._admin().create_topics([new], operation_timeout=_REQUEST_TIMEOUT_S)[self.name].result(
                _REQUEST_TIMEOUT_S
            )
        except (KafkaException, TimeoutError) as error:
            if not isinstance(error, KafkaException) or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                reason = error.args[0].str() if isinstance(error, KafkaException) else "no broker answers"
                raise PenstockError(
                    f"Topic '{self.name}' cannot be created at '{self.cluster.bootstrap_servers}': "
                    f"{reason}{self._error_suffix()}"
                ) from None
            partitions = 1
        deadline = time.monotonic() + _REQUEST_TIMEOUT_S
        while True:  # other brokers learn of the topic a moment later
            self._counted_at = float("-inf")
            count = len(self.partitions())
            if count >= partitions or time.monotonic() > deadline:
                return count
            time.sleep(0.02)

    def delete(self) -> None:
        """Delete the topic if it exists.

        Raises:
            KafkaException: No broker answers, or the access is refused.
        """
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._admin().delete_topics([self.name], request_timeout=_POLL_TIMEOUT_S)[self.name].result(
                2 * _POLL_TIMEOUT_S
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise

    def has_records(self, timeout_s: float = _POLL_TIMEOUT_S) -> bool:
        """Return whether any record is retained. Markers of transactions count as records."""
        starts = self.starts(timeout_s)
        return any(end > starts[partition] for partition, end in self.ends(timeout_s).items())

    def delete_all_records(self) -> None:
        """Delete all records and wait for it.

        Raises:
            KafkaException: No broker answers, or the deletion is refused, as for a compacted topic.
        """
        from confluent_kafka import OFFSET_END, TopicPartition

        parts = [TopicPartition(self.name, partition, OFFSET_END) for partition in self.partitions()]
        for future in self._admin().delete_records(parts, request_timeout=_REQUEST_TIMEOUT_S).values():
            future.result(2 * _REQUEST_TIMEOUT_S)

    def delete_records_before(self, offsets: Offsets) -> None:
        """Request the deletion of all records before these offsets, without waiting for it."""
        from confluent_kafka import TopicPartition

        parts = [TopicPartition(self.name, partition, offset) for partition, offset in offsets.items()]
        if parts:
            for future in self._admin().delete_records(parts, request_timeout=_REQUEST_TIMEOUT_S).values():
                future.add_done_callback(self._note_refusal)

    def _note_refusal(self, future: Any) -> None:
        """Log the first refusal; later ones have the same cause."""
        from confluent_kafka import KafkaException

        error = future.exception()
        if self._may_delete and isinstance(error, KafkaException) and is_permanent(error.args[0]):
            self._may_delete = False
            _LOG.warning(
                "Topic '%s' grows without limit, because its records cannot be deleted: %s; grant the permission to "
                "delete.",
                self.name,
                error.args[0].str(),
            )

    def _described(self, timeout_s: float) -> Any:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        futures = self._admin().describe_topics(TopicCollection([self.name]), request_timeout=timeout_s)
        try:
            return futures[self.name].result(2 * timeout_s)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def _offsets(self, spec: Any, timeout_s: float) -> Offsets:
        from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

        requests = {TopicPartition(self.name, partition): spec for partition in self.partitions(timeout_s)}
        if not requests:
            return {}
        deadline = time.monotonic() + timeout_s
        while True:
            futures = self._admin().list_offsets(
                requests, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
            )
            try:
                offsets = {part.partition: future.result(2 * timeout_s).offset for part, future in futures.items()}
                if min(offsets.values()) < 0:  # the client's value for a broker that has not answered
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not answer"))
                return offsets
            except KafkaException as error:
                if not has_no_leader(error.args[0]) or time.monotonic() > deadline:
                    self._counted_at = float("-inf")
                    raise
                time.sleep(0.05)

    def _error_suffix(self) -> str:
        """Return the latest error of the client in parentheses, such as a wrong password."""
        self._admin()
        return f" ({self._client_error})" if self._client_error else ""

    def _on_client_error(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # a consequence of an earlier error
            self._client_error = str(error.str())

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._client is None:
            self._client = self.cluster.client(AdminClient, error_cb=self._on_client_error)
        self._client.poll(0)  # delivers queued errors, which would otherwise accumulate
        return self._client
