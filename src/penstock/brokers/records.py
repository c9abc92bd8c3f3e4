"""Read and append the records of a topic.

Each process creates its clients once, because connecting takes longer than reading a small batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from penstock.brokers.cluster import KafkaCluster, is_permanent
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError

_SILENCE_TIMEOUT_S = 600.0  # an unavailable broker is waited for this long
_CHECK_TOPIC_AFTER_S = 5.0  # without records, check whether the topic still exists
_POLL_S = 0.1
_RECORDS_PER_POLL = 10_000
MAX_RECORD_BYTES = 32 << 20
MAX_PENDING_RECORDS = 200_000  # handed to the client and not confirmed by the broker


@dataclass(frozen=True, slots=True)
class Span:
    """The records of one partition from offset `start` up to, but not including, `stop`."""

    partition: int
    start: int
    stop: int


def records(cluster: KafkaCluster, topic: str, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """Yield the records of these spans, in order within each partition, without those of aborted transactions.

    Args:
        cluster: The cluster of the topic.
        topic: Name of the topic.
        spans: Ranges of offsets, at most one per partition.

    Raises:
        PenstockError: Records were deleted before they were read, the access is refused, or no broker answers.
    """
    from confluent_kafka import KafkaError, TopicPartition

    stops = {span.partition: span.stop for span in spans if span.start < span.stop}
    positions = {span.partition: span.start for span in spans}
    if not stops:
        return
    consumer = _consumer(cluster, topic)
    silence = _Silence(Topic(cluster, topic))
    paused: list[Any] = []
    consumer.assign([TopicPartition(topic, span.partition, span.start) for span in spans if span.start < span.stop])
    try:
        while stops:
            # The client waits for the requested number of records: never request more than remain.
            left = sum(stop - positions[partition] for partition, stop in stops.items())
            polled = consumer.consume(min(_RECORDS_PER_POLL, left), timeout=_POLL_S)
            batch, ended = [], set()
            for record in polled:
                partition, offset, error = record.partition(), record.offset(), record.error()
                stop = stops.get(partition)
                if stop is None:
                    continue  # requested by the previous task
                if error is None:
                    positions[partition] = min(offset + 1, stop)
                    if offset < stop:
                        batch.append(record)
                    if offset >= stop - 1:
                        ended.add(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if offset >= stop:  # the last entry may be the marker of a transaction
                        ended.add(partition)
                else:
                    silence.reason = _transient(error, topic, partition)
            silence.update(bool(batch or ended))
            for partition in ended:
                stops.pop(partition, None)
            if ended and stops:
                done = [TopicPartition(topic, partition) for partition in ended]
                consumer.pause(done)
                paused += done
            if batch:
                yield batch
    finally:
        if paused:
            consumer.resume(paused)  # a pause survives an assignment
        consumer.unassign()


def _transient(error: Any, topic: str, partition: int) -> str:
    """Return the text of a transient error; raise PenstockError for a permanent one."""
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise PenstockError(
            f"Records of topic '{topic}' (partition {partition}) were deleted before they were read; give the topic a "
            "longer retention, or start a new run."
        )
    if is_permanent(error):
        raise PenstockError(f"Topic '{topic}' cannot be read: {error.str()}")
    return str(error.str())


class _Silence:
    """The time without records. An unavailable broker is waited for; a deleted topic is an error."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._since_s = self._checked_s = time.monotonic()
        self.reason = "no error was reported"

    def update(self, has_records: bool) -> None:
        """Note whether records arrived; raise PenstockError after too long a silence."""
        now_s = time.monotonic()
        if has_records:
            self._since_s = self._checked_s = now_s
        elif now_s - self._since_s > _SILENCE_TIMEOUT_S:
            raise PenstockError(
                f"No Kafka broker at '{self._topic.cluster.bootstrap_servers}' has returned records of "
                f"topic '{self._topic.name}' for {_SILENCE_TIMEOUT_S:g} s: {self.reason}"
            )
        elif now_s - self._checked_s > _CHECK_TOPIC_AFTER_S:
            self._topic.require_exists()
            self._checked_s = time.monotonic()


@lru_cache(maxsize=16)  # topics of cuts are created and deleted during a run
def _consumer(cluster: KafkaCluster, topic: str) -> Any:
    from confluent_kafka import Consumer

    return cluster.client(
        Consumer,
        **{
            "group.id": "penstock",  # never joined, because Spark keeps the offsets
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": MAX_RECORD_BYTES,
            "fetch.wait.max.ms": 10,  # a fetch that waits for records delays the next span
            "fetch.error.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "check.crcs": False,
        },
    )


@cache
def producer(cluster: KafkaCluster) -> Any:
    """Return the producer of this process. It appends each record once and in order, also after retries."""
    from confluent_kafka import Producer

    return cluster.client(
        Producer,
        **{
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.max.bytes": MAX_RECORD_BYTES,
            "delivery.timeout.ms": int(_SILENCE_TIMEOUT_S * 1000),
            "reconnect.backoff.max.ms": 1000,
            "queue.buffering.max.kbytes": 1 << 20,
            "batch.size": 1 << 20,
        },
    )


def append(
    producer: Any,
    topic: str,
    messages: list[dict[str, Any]],
    errors: list[Any],
    *,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Hand records to the producer, waiting while its queue is full.

    Args:
        producer: A producer of confluent-kafka.
        topic: Name of the topic.
        messages: Records as dicts, such as {"value": b"..."}.
        errors: List to which delivery errors are added, also after this function has returned.
        on_wait: Function that is called while the queue is full. It may raise an exception.
    """
    from confluent_kafka import KafkaError

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    while len(producer) > MAX_PENDING_RECORDS and not errors:
        on_wait()
        producer.poll(0.01)
    while messages and not errors:
        queued = producer.produce_batch(topic, messages, on_delivery=delivered)
        messages = [message for message in messages if "_error" in message]
        rejected = [message.pop("_error") for message in messages]
        errors += [error for error in rejected if error.code() != KafkaError._QUEUE_FULL]
        if messages and not queued:
            on_wait()
        producer.poll(0.05 if messages and not queued else 0)
