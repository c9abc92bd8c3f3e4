"""Topics of a cluster: whether they are there, how far they reach, made and deleted."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

from penstock.brokers.cluster import KafkaCluster, leaderless, permanent
from penstock.dataflow.errors import PenstockError

Offsets = dict[int, int]  # partition -> offset

_ANSWER_S = 5.0
_PATIENCE_S = 30.0
_PARTITIONS_FOR_S = 2.0  # a topic may be given more of them while it is read, or be deleted and created again
_GONE_AFTER_S = 10.0  # a broker that has just come back may not know its topics yet
_LOG = logging.getLogger("penstock.brokers")


class Topic:
    """One topic, asked through one client that is made when it is first needed."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.id: str | None = None  # another one when it is created again; known once its partitions are
        self._client: Any = None
        self._heard = ""  # of the client, which goes on trying
        self._partitions: tuple[int, ...] = ()
        self._counted_at = float("-inf")
        self._missing_since_s: float | None = None
        self._may_delete = True

    def partitions(self, timeout_s: float = _ANSWER_S) -> tuple[int, ...]:
        """Its partitions; none where there is no such topic. Raises KafkaException where nobody answers."""
        if time.monotonic() - self._counted_at > _PARTITIONS_FOR_S:
            since, self._missing_since_s = self._missing_since_s, None
            found = self._described(timeout_s)
            if found is None:
                self._missing_since_s = since or time.monotonic()
                return ()
            self._partitions = tuple(sorted(part.id for part in found.partitions))
            self.id = str(found.topic_id)
            self._counted_at = time.monotonic()
        return self._partitions

    def required(self, what: str, create: str | None = None) -> tuple[int, ...]:
        """Its partitions, or one clear error: nobody answers, or there is no such topic."""
        from confluent_kafka import KafkaException

        try:
            partitions = self.partitions(_PATIENCE_S)
        except (KafkaException, TimeoutError) as error:
            cause = error.args[0] if isinstance(error, KafkaException) else None
            if cause is not None and permanent(cause):
                raise PenstockError(f"{what}: topic '{self.name}' cannot be had: {cause.str()}") from None
            raise PenstockError(
                f"{what}: no Kafka broker answers at '{self.cluster.bootstrap_servers}' within "
                f"{_PATIENCE_S:g} s{self._said()}; check bootstrap_servers and the security options, "
                "or start one with 'penstock broker start'"
            ) from None
        if not partitions:
            create = create or f"create it, such as with 'penstock broker topic {self.name} --partitions 4'"
            raise PenstockError(
                f"{what}: there is no topic '{self.name}' at '{self.cluster.bootstrap_servers}'; {create}, "
                "or check its name"
            )
        return partitions

    @property
    def missing(self) -> bool:
        """Whether the last broker that was asked knew no such topic."""
        return self._missing_since_s is not None

    def require_still(self, timeout_s: float = _ANSWER_S) -> None:
        """One clear error where brokers have answered for a while that there is no such topic any more."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException, TimeoutError):
            self.partitions(timeout_s)
        since_s = self._missing_since_s
        if since_s is not None and time.monotonic() - since_s > _GONE_AFTER_S:
            raise PenstockError(
                f"topic '{self.name}' is not at '{self.cluster.bootstrap_servers}' any more: somebody has deleted it; "
                "create it again if it is only written to, else begin a new run in another directory"
            )

    def ends(self, timeout_s: float = _ANSWER_S) -> Offsets:
        """Behind the last record of each partition that is committed."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.latest(), timeout_s)

    def starts(self, timeout_s: float = _ANSWER_S) -> Offsets:
        """The first record of each partition that is still there."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.earliest(), timeout_s)

    def create(self, partitions: int, **config: str) -> int:
        """Creates it unless it is there; how many partitions it has."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        new = NewTopic(self.name, num_partitions=partitions, config=config)
        try:
            self._admin().create_topics([new], operation_timeout=_PATIENCE_S)[self.name].result(_PATIENCE_S)
        except (KafkaException, TimeoutError) as error:
            if not isinstance(error, KafkaException) or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                why = error.args[0].str() if isinstance(error, KafkaException) else "no broker answers"
                raise PenstockError(
                    f"topic '{self.name}' cannot be created at '{self.cluster.bootstrap_servers}': {why}{self._said()}"
                ) from None
            partitions = 1
        deadline = time.monotonic() + _PATIENCE_S
        while True:  # brokers hear of it a moment later
            self._counted_at = float("-inf")
            found = len(self.partitions())
            if found >= partitions or time.monotonic() > deadline:
                return found
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
            for future in self._admin().delete_records(parts, request_timeout=_PATIENCE_S).values():
                future.add_done_callback(self._note_refusal)

    def _note_refusal(self, future: Any) -> None:
        """Once: it is the same each time."""
        from confluent_kafka import KafkaException

        error = future.exception()
        if self._may_delete and isinstance(error, KafkaException) and permanent(error.args[0]):
            self._may_delete = False
            _LOG.warning(
                "topic '%s' grows for ever, since what was read of it cannot be deleted: %s; give the user the right",
                self.name,
                error.args[0].str(),
            )

    def _described(self, timeout_s: float) -> Any:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        asked = self._admin().describe_topics(TopicCollection([self.name]), request_timeout=timeout_s)
        try:
            return asked[self.name].result(2 * timeout_s)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

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
                offsets = {part.partition: future.result(2 * timeout_s).offset for part, future in found.items()}
                if min(offsets.values()) < 0:  # the client's word for none, where a frozen broker has not answered
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not answer"))
                return offsets
            except KafkaException as error:
                if not leaderless(error.args[0]) or time.monotonic() > deadline:
                    self._counted_at = float("-inf")
                    raise
                time.sleep(0.05)

    def _said(self) -> str:
        """What the client says of its brokers, such as a password that is wrong."""
        self._admin()
        return f" ({self._heard})" if self._heard else ""

    def _hear(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # that follows from what was said before
            self._heard = str(error.str())

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._client is None:
            self._client = self.cluster.client(AdminClient, error_cb=self._hear)
        self._client.poll(0)  # its errors wait for this, and would pile up
        return self._client
