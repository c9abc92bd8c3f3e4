"""Records of a range of offsets, by a client that each process makes once and keeps.

Making one and finding the brokers takes longer than reading a small batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from penstock.brokers.cluster import KafkaCluster, permanent
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError

_PATIENCE_S = 600.0  # a broker that is away for so long is waited for
_ASK_S = 5.0  # of silence, and it is asked whether the topic is still there
_POLL_S = 0.1
_AT_ONCE = 10_000
LARGEST_RECORD = 32 << 20
ROOM = 200_000  # records on their way to the broker


@dataclass(frozen=True, slots=True)
class Span:
    """Records start..stop of one partition."""

    partition: int
    start: int
    stop: int


def records(cluster: KafkaCluster, topic: str, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """The records of these spans, of each partition in order; transactions that were given up are left out.

    A partition has one span at most. Raises PenstockError where records of it are gone.
    """
    from confluent_kafka import KafkaError, TopicPartition

    stops = {span.partition: span.stop for span in spans if span.start < span.stop}
    at = {span.partition: span.start for span in spans}
    if not stops:
        return
    consumer = _consumer(cluster, topic)
    silence = _Silence(Topic(cluster, topic))
    paused: list[Any] = []
    consumer.assign([TopicPartition(topic, span.partition, span.start) for span in spans if span.start < span.stop])
    try:
        while stops:
            # It waits for as many as it is asked for: never for more than can come.
            left = sum(stop - at[partition] for partition, stop in stops.items())
            some = consumer.consume(min(_AT_ONCE, left), timeout=_POLL_S)
            found, ended = [], set()
            for record in some:
                partition, offset, error = record.partition(), record.offset(), record.error()
                stop = stops.get(partition)
                if stop is None:
                    continue  # asked for by the task before
                if error is None:
                    at[partition] = min(offset + 1, stop)
                    if offset < stop:
                        found.append(record)
                    if offset >= stop - 1:
                        ended.add(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if offset >= stop:  # what is last may be no record but the mark of a transaction
                        ended.add(partition)
                else:
                    silence.why = _borne(error, topic, partition)
            silence.heard(bool(found or ended))
            for partition in ended:
                stops.pop(partition, None)
            if ended and stops:
                done = [TopicPartition(topic, partition) for partition in ended]
                consumer.pause(done)
                paused += done
            if found:
                yield found
    finally:
        if paused:
            consumer.resume(paused)  # a pause outlives an assignment
        consumer.unassign()


def _borne(error: Any, topic: str, partition: int) -> str:
    """What an error says that may pass; one that cannot is raised."""
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise PenstockError(
            f"records of topic '{topic}' were deleted before they were read (partition {partition}): the topic keeps "
            "them for too short a time; start a new run, or give the topic a longer retention"
        )
    if permanent(error):
        raise PenstockError(f"topic '{topic}' cannot be read: {error.str()}")
    return str(error.str())


class _Silence:
    """How long nothing has come; a broker that is away is waited for, a topic that is gone is not."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._since_s = self._asked_s = time.monotonic()
        self.why = "it says nothing"

    def heard(self, anything: bool) -> None:
        now_s = time.monotonic()
        if anything:
            self._since_s = self._asked_s = now_s
        elif now_s - self._since_s > _PATIENCE_S:
            raise PenstockError(
                f"no Kafka broker at '{self._topic.cluster.bootstrap_servers}' has given records of "
                f"topic '{self._topic.name}' for {_PATIENCE_S:g} s: {self.why}"
            )
        elif now_s - self._asked_s > _ASK_S:
            self._topic.require_still()
            self._asked_s = time.monotonic()


@lru_cache(maxsize=16)  # topics of cuts come and go
def _consumer(cluster: KafkaCluster, topic: str) -> Any:
    from confluent_kafka import Consumer

    return cluster.client(
        Consumer,
        **{
            "group.id": "penstock",  # never joined: offsets are Spark's affair
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": LARGEST_RECORD,
            "fetch.wait.max.ms": 10,  # one that waits for records to come is in the way of the next span
            "fetch.error.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "check.crcs": False,
        },
    )


@cache
def producer(cluster: KafkaCluster) -> Any:
    """A producer of this process: each record once and in order, however often the client has to try."""
    from confluent_kafka import Producer

    return cluster.client(
        Producer,
        **{
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.max.bytes": LARGEST_RECORD,
            "delivery.timeout.ms": int(_PATIENCE_S * 1000),
            "reconnect.backoff.max.ms": 1000,
            "queue.buffering.max.kbytes": 1 << 20,
            "batch.size": 1 << 20,
        },
    )


def append(
    producer: Any,
    topic: str,
    messages: list[dict[str, Any]],
    refused: list[Any],
    *,
    waiting: Callable[[], None] = lambda: None,
) -> None:
    """Hands over records, by the batch and as there is room; why one is refused comes to `refused`, now or later.

    While there is no room `waiting` is called, which may raise.
    """
    from confluent_kafka import KafkaError

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error)

    while len(producer) > ROOM and not refused:
        waiting()
        producer.poll(0.01)
    while messages and not refused:
        queued = producer.produce_batch(topic, messages, on_delivery=delivered)
        messages = [one for one in messages if "_error" in one]
        refused += [error for one in messages if (error := one.pop("_error")).code() != KafkaError._QUEUE_FULL]
        if messages and not queued:
            waiting()
        producer.poll(0.05 if messages and not queued else 0)
