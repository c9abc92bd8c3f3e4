"""Records of a range of offsets, by a client that each process makes once and keeps.

Making one and finding the brokers takes longer than reading a small batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from penstock.brokers.cluster import Cluster
from penstock.dataflow.errors import PenstockError

_PATIENCE_S = 600.0  # a broker that is away for so long is waited for
_POLL_S = 0.1
_AT_ONCE = 10_000
LARGEST_RECORD = 32 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """Records start..stop of one partition."""

    partition: int
    start: int
    stop: int


def records(cluster: Cluster, topic: str, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """The records of these spans, of each partition in order; transactions that were given up are left out.

    A partition has one span at most. Raises PenstockError where records of it are gone.
    """
    from confluent_kafka import KafkaError, TopicPartition

    stops = {span.partition: span.stop for span in spans if span.start < span.stop}
    at = {span.partition: span.start for span in spans}
    if not stops:
        return
    consumer = _consumer(cluster, topic)
    paused: list[Any] = []
    consumer.assign([TopicPartition(topic, span.partition, span.start) for span in spans if span.start < span.stop])
    heard_s = time.monotonic()
    try:
        while stops:
            # It waits for as many as it is asked for: never for more than can come.
            left = sum(stop - at[partition] for partition, stop in stops.items())
            some = consumer.consume(min(_AT_ONCE, left), timeout=_POLL_S)
            if some:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _PATIENCE_S:
                raise PenstockError(
                    f"no Kafka broker at '{cluster.servers}' has given records of topic '{topic}' for {_PATIENCE_S:g} s"
                )
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
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise PenstockError(
                        f"records of topic '{topic}' were deleted before they were read (partition {partition}): the "
                        "topic keeps them for too short a time; start a new run, or give the topic a longer retention"
                    )
                elif error.fatal():
                    raise PenstockError(f"topic '{topic}' at '{cluster.servers}' cannot be read: {error.str()}")
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


@lru_cache(maxsize=16)  # topics of cuts come and go
def _consumer(cluster: Cluster, topic: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        cluster.config(
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
            }
        )
    )


@cache
def producer(cluster: Cluster) -> Any:
    """A producer of this process: each record once and in order, however often the client has to try."""
    from confluent_kafka import Producer

    return Producer(
        cluster.config(
            **{
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.max.bytes": LARGEST_RECORD,
                "delivery.timeout.ms": int(_PATIENCE_S * 1000),
                "reconnect.backoff.max.ms": 1000,
                "queue.buffering.max.kbytes": 1 << 20,
                "batch.size": 1 << 20,
            }
        )
    )
