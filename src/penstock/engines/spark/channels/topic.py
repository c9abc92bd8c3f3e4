"""Rows of a channel in a Kafka topic: a record holds many rows, as one Arrow batch.

A record has the address "partition:offset", which the channel's log names. A task that is tried twice, or a batch that
a crash cut short, leaves records that no log names: readers step over them. So a batch counts once without a
transaction, which could not span the producers of many tasks anyway. A record's key says whence it is (batch, task,
number), for people who look.

The topic's partitions are key groups. Rows of one key lie in one of them, in order, and up to as many replicas as there
are groups read whole groups, so that a key's rows reach one replica in order. Where there are more replicas than
groups, neighbours share a group's rows, unless they are read by key: then some replicas read nothing, since what takes
time is behind the shuffle that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import LARGEST_RECORD, Span, producer, records
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.channels.contract import ChannelBusyError
from penstock.engines.spark.storage import row_files
from penstock.engines.spark.storage.column_names import map_in_arrow, quoted
from penstock.engines.spark.storage.row_files import RowFile, Slice, conformed

_WRITTEN = "file string, rows bigint, bytes bigint"
_GROUP = "__penstock_group"
_RECORD_BYTES = 512 << 10  # about; records of this size cost next to nothing each, and many fit a fetch
_LARGEST_VALUE = LARGEST_RECORD - (64 << 10)  # key and frame take the rest


class TopicPlace:
    def __init__(self, cluster: KafkaCluster, topic: str, groups: int, keys: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._groups = groups
        self._keys = keys

    def create(self) -> None:
        Topic(self._cluster, self._topic).create(
            self._groups,
            **{
                # What is unread must never go by itself; what is read is deleted, by segments. A cluster that compacts
                # unless told otherwise would delete the first of two tries, which is the one that counts.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "segment.bytes": str(LARGEST_RECORD + (1 << 20)),  # the least that takes any record
                "max.message.bytes": str(LARGEST_RECORD),
            },
        )

    def write(self, df: DataFrame, key: str) -> list[RowFile]:
        cluster, topic, groups, keyed = self._cluster, self._topic, self._groups, bool(self._keys)
        if keyed:
            df = df.withColumn(_GROUP, F.pmod(F.hash(*map(quoted, self._keys)), F.lit(groups)))

        def write(batches: Any) -> Any:
            task = TaskContext.get().partitionId()
            writer = _Writer(cluster, topic, f"{key}/{task}")
            turn = task
            for batch in batches:
                if keyed:
                    group = batch.column(batch.num_columns - 1)
                    rows = batch.select(batch.schema.names[:-1])
                    for one in pc.unique(group).to_pylist():
                        writer.add(one, rows.filter(pc.equal(group, one)))
                else:
                    writer.add(turn % groups, batch)
                    turn += 1
            done = writer.done()
            if done:
                places, counts, sizes = zip(*done, strict=True)
                yield pa.RecordBatch.from_pydict(
                    {"file": list(places), "rows": list(counts), "bytes": list(sizes)},
                    schema=pa.schema([("file", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]),
                )

        written = [RowFile(row.file, row.rows, row.bytes) for row in map_in_arrow(df, write, _WRITTEN).collect()]
        return sorted(written, key=lambda file: _address(file.path))

    def shares(self, files: Sequence[RowFile], replicas: int) -> list[list[Slice]]:
        """
        >>> files = [RowFile(f"{group}:0", 2, 0) for group in range(4)]
        >>> place = TopicPlace(KafkaCluster(bootstrap_servers=""), "t", 4, ())
        >>> [[(one.path, one.rows) for one in share] for share in place.shares(files, 2)]
        [[('0:0', 2), ('1:0', 2)], [('2:0', 2), ('3:0', 2)]]
        >>> [[(one.path, one.rows) for one in share] for share in place.shares(files, 5)]
        [[('0:0', 2)], [('1:0', 2)], [('2:0', 2)], [('3:0', 1)], [('3:0', 1)]]
        """
        by_group: dict[int, list[RowFile]] = {}
        for file in sorted(files, key=lambda file: _address(file.path)):
            by_group.setdefault(_address(file.path)[0], []).append(file)
        parts: list[list[Slice]] = [[] for _ in range(replicas)]
        for group, some in by_group.items():
            low, high = group * replicas // self._groups, (group + 1) * replicas // self._groups
            readers = 1 if self._keys else max(1, high - low)
            rows = sum(file.rows for file in some)
            for number, share in enumerate(row_files.shares(some, 0, rows, readers)):
                parts[low + number] += share
        return parts

    def read(self, slices: Iterable[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted: dict[tuple[int, int], Slice] = {_address(one.path): one for one in slices}
        spans: dict[int, Span] = {}
        for group, offset in sorted(wanted):
            first = spans[group].start if group in spans else offset
            spans[group] = Span(group, first, offset + 1)
        left = set(wanted)
        for some in records(self._cluster, self._topic, list(spans.values())):
            for record in some:
                address = (record.partition(), record.offset())
                if address in left:
                    left.remove(address)
                    one = wanted[address]
                    with pa.ipc.open_stream(record.value()) as stream:
                        yield conformed(stream.read_next_batch().slice(one.skip, one.rows), schema)
        if left:
            raise PenstockError(
                f"records {sorted(left)[:3]} of topic '{self._topic}' are gone before they were read; somebody has "
                "deleted from a topic of Penstock's own, and the run cannot go on"
            )

    def discard(self, files: Sequence[RowFile]) -> None:
        """Kafka cannot delete single records: they go with what is before and behind them."""

    def delete(self, files: Sequence[RowFile]) -> None:
        """Kafka deletes from the front: whatever lies before the last of these, strays included."""
        before: dict[int, int] = {}
        for file in files:
            group, offset = _address(file.path)
            before[group] = max(before.get(group, 0), offset + 1)
        if before:
            _topic(self._cluster, self._topic).forget(before)

    def check(self) -> None:
        from confluent_kafka import KafkaException

        try:
            _topic(self._cluster, self._topic).ends(timeout_s=2.0)
        except (KafkaException, TimeoutError):
            raise ChannelBusyError(
                f"channel '{self._topic}': no Kafka broker answers at '{self._cluster.bootstrap_servers}'"
            ) from None

    def drop(self) -> None:
        from confluent_kafka import KafkaException

        try:
            _topic(self._cluster, self._topic).delete()
        except (KafkaException, TimeoutError) as error:
            raise ChannelBusyError(f"topic '{self._topic}' cannot be deleted now: {error}") from None


def halved(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows in parts of about a record's size, however unevenly that is spread, and of one row at least.

    >>> rows = pa.RecordBatch.from_pydict({"v": ["x" * (1 << 20), *"abc"]})
    >>> [part.num_rows for part in halved(rows)]
    [1, 1, 2]
    """
    if rows.num_rows > 1 and rows.nbytes > 2 * _RECORD_BYTES:
        middle = rows.num_rows // 2
        yield from halved(rows.slice(0, middle))
        yield from halved(rows.slice(middle))
    else:
        yield rows


class _Writer:
    """Gathers a task's rows by group, sends them as records, and tells which record went where."""

    def __init__(self, cluster: KafkaCluster, topic: str, name: str) -> None:
        self._producer = producer(cluster)
        self._topic = topic
        self._name = name
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._sizes: dict[int, int] = {}
        self._number = 0
        self._done: list[tuple[str, int, int]] = []
        self._failed: list[Any] = []

    def add(self, group: int, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(group, []).append(rows)
        self._sizes[group] = self._sizes.get(group, 0) + rows.nbytes
        if self._sizes[group] >= _RECORD_BYTES:
            self._send(group)

    def done(self) -> list[tuple[str, int, int]]:
        for group in list(self._waiting):
            self._send(group)
        self._producer.flush()
        if self._failed or len(self._done) != self._number:
            producer.cache_clear()  # a client that has failed for good stays so
            why = self._failed[0].str() if self._failed else "the broker did not confirm them"
            raise PenstockError(f"rows cannot be written to topic '{self._topic}': {why}")
        return self._done

    def _send(self, group: int) -> None:
        for batch in pa.Table.from_batches(self._waiting.pop(group)).combine_chunks().to_batches():
            for rows in halved(batch):
                self._produce(group, rows)
        del self._sizes[group]

    def _produce(self, group: int, rows: pa.RecordBatch) -> None:
        from confluent_kafka import KafkaException

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        value = sink.getvalue().to_pybytes()
        if len(value) > _LARGEST_VALUE:
            raise PenstockError(
                f"a row of {len(value):,} bytes is larger than the {_LARGEST_VALUE:,} that go into a record of a cut "
                "in Kafka; make it smaller, or run it with --channel embedded"
            )

        def delivered(error: Any, record: Any) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                self._done.append((f"{group}:{record.offset()}", rows.num_rows, len(value)))

        key = f"{self._name}/{self._number}"
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition=group, on_delivery=delivered)
                break
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as refused:  # of a client that knows that it is in vain
                self._failed.append(refused.args[0])
                break
        self._number += 1
        self._producer.poll(0)


# One per process: a place is sent to workers, a client is not.
_topics: dict[tuple[KafkaCluster, str], Topic] = {}


def _topic(cluster: KafkaCluster, name: str) -> Topic:
    return _topics.setdefault((cluster, name), Topic(cluster, name))


def _address(place: str) -> tuple[int, int]:
    group, _, offset = place.partition(":")
    return int(group), int(offset)
