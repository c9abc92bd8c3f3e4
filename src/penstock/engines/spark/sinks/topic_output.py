"""A Kafka topic as an output that belongs to a run.

The record of its owners is the metadata of a committed offset in the consumer group `penstock-owner-TOPIC`, which has
no members. The record is read and written within one transaction of the producer with the same name. Kafka lets only
the latest such producer commit, so that of two runs that claim a topic at the same time, one sees the other.

Kafka forgets the record after `offsets.retention.minutes` without a start of a run (one week by default). A topic that
contains records is foreign to a new run even then. Kafka does not tell who wrote a record, so that records of a program
other than Penstock are only detected at the start of a new run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.brokers.call_timeout import Result, call_with_timeout
from penstock.brokers.cluster import is_fenced, is_permanent
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.sinks.ownership import Claim, OutputOwner, Ownership

_MAX_OWNERS = 8  # Kafka limits the metadata of an offset to 4096 bytes
_CALL_TIMEOUT_S = 20.0
_CLAIM_TIMEOUT_S = 60.0


def group_of(owner: OutputOwner) -> str:
    """Return the name of the transactions of a sink, and of the consumer group that keeps its last batch."""
    return f"penstock-{owner.run}-{owner.sink}"


class TopicOutput:
    """One topic, claimed by one sink of a run."""

    def __init__(self, topic: Topic, claim: Claim) -> None:
        self._topic = topic
        self._claim = claim
        self._group = f"penstock-owner-{topic.name}"

    def check(self) -> None:
        """Raise PenstockError before anything runs if the sink cannot or may not write to the topic."""
        self._topic.required(f"sink '{self._claim.owner.sink}'")
        self._repeated(self._decide)

    def claim(self) -> None:
        """Record the sink as an owner of the topic, and delete earlier records if the sink overwrites them.

        A crash in the middle of the deletion leaves the topic to this run, which completes the deletion when it is
        started again.
        """
        self._repeated(self._claim_topic)

    def check_owned(self) -> None:
        """Raise PenstockError if another run has overwritten the topic since this one claimed it."""
        record = self._read()
        # Kafka may have forgotten the record, and a full one may have lost this run.
        if 0 < len(record.owners) < _MAX_OWNERS and not record.includes(self._claim.owner):
            raise self._claim.lost_to(record)

    def _claim_topic(self) -> None:
        record = self._replace(is_overwriting=None)
        if record.is_overwriting:
            for owner in record.replaced:
                self._remove(owner)
            self._topic.delete_all_records()
            self._replace(is_overwriting=False)

    def _replace(self, *, is_overwriting: bool | None) -> Ownership:
        """Write the record after the claim, unless another run claims the topic at the same time.

        `is_overwriting` False completes an overwrite; None leaves it to the claim.
        """
        from confluent_kafka import Producer, TopicPartition

        producer = self._topic.cluster.client(Producer, **{"transactional.id": self._group})
        self._call(producer.init_transactions, _CALL_TIMEOUT_S)
        record = self._decide()
        if is_overwriting is False:
            record = Ownership(owners=record.owners)
        stored = msgspec.structs.replace(record, owners=record.owners[-_MAX_OWNERS:])
        offset = TopicPartition(self._topic.name, 0, 0, metadata=msgspec.json.encode(stored).decode())
        producer.begin_transaction()
        group = self._consumer(self._group).consumer_group_metadata()
        self._call(producer.send_offsets_to_transaction, [offset], group, _CALL_TIMEOUT_S)
        self._call(producer.commit_transaction, _CALL_TIMEOUT_S)
        return record

    def _remove(self, owner: OutputOwner) -> None:
        """Stop the producer of another sink, and delete the key of its last batch, so that it cannot be resumed."""
        from confluent_kafka import KafkaError, KafkaException, Producer
        from confluent_kafka.admin import AdminClient

        group = group_of(owner)
        producer = self._topic.cluster.client(Producer, **{"transactional.id": group})
        self._call(producer.init_transactions, _CALL_TIMEOUT_S)
        admin = self._topic.cluster.client(AdminClient)
        try:
            admin.delete_consumer_groups([group])[group].result(_CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def _decide(self) -> Ownership:
        foreign, has_own_rows = None, False
        if self._claim.is_resumed:
            has_own_rows = self._committed(group_of(self._claim.owner)) is not None
        elif self._topic.has_records():
            foreign = "records"
        return self._claim.decide(self._read(), foreign=foreign, has_own_rows=has_own_rows)

    def _read(self) -> Ownership:
        record = self._committed(self._group)
        try:
            return msgspec.json.decode(record, type=Ownership) if record else Ownership()
        except msgspec.DecodeError as error:
            raise PenstockError(
                f"Sink '{self._claim.owner.sink}': consumer group '{self._group}' does not name the runs that own "
                f"topic '{self._topic.name}' ({error}); delete that group, or give another topic."
            ) from None

    def _committed(self, group: str) -> str | None:
        """Return the metadata that a consumer group keeps for the topic; None if there is none."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer(group)
        (kept,) = self._call(consumer.committed, [TopicPartition(self._topic.name, 0)], _CALL_TIMEOUT_S)
        if kept.error is not None:
            raise KafkaException(kept.error)
        return str(kept.metadata) if kept.metadata else None

    def _consumer(self, group: str) -> Any:
        from confluent_kafka import Consumer

        config = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
        return self._topic.cluster.client(Consumer, **config)

    def _call(self, call: Callable[..., Result], *arguments: Any) -> Result:
        return call_with_timeout(lambda: _CALL_TIMEOUT_S, call, *arguments)

    def _repeated(self, call: Callable[[], object]) -> None:
        """Repeat a call until it succeeds. It fails while another run claims the topic, and while a broker starts."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _CLAIM_TIMEOUT_S
        while True:
            try:
                call()
                return
            except (KafkaException, TimeoutError) as error:
                cause = error.args[0] if isinstance(error, KafkaException) else None
                is_final = cause is not None and is_permanent(cause) and not is_fenced(cause)
                if is_final or time.monotonic() > deadline:
                    reason = "no broker answers" if cause is None else cause.str()
                    raise PenstockError(
                        f"Sink '{self._claim.owner.sink}': topic '{self._topic.name}' cannot be claimed: {reason}; "
                        "check the broker, and the permissions for groups and transactions whose names begin with "
                        "'penstock-'."
                    ) from error
                time.sleep(random.uniform(0.1, 1.0))  # two runs would otherwise disturb each other again
