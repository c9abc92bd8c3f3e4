"""Rows of a channel in a Kafka topic. A record holds many rows as one Arrow batch.

The address of a record is "partition:offset", and the channel's log lists the addresses that count. A task that runs
twice, or a batch that a crash interrupts, leaves records that no log lists; readers skip them. A batch therefore counts
once without a transaction, which could not span the producers of many tasks. The key of a record names its batch, task
and number for people who inspect the topic.

The partitions of the topic are key groups. Rows with equal keys are in one group, in order. If there are no
more replicas than groups, a replica reads whole groups, so the rows of a key reach one replica in order. Additional
replicas share the rows of a group, unless the rows are read by key: then they read nothing, because the work follows
the shuffle after the read.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import MAX_RECORD_BYTES, Span, producer, records
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.channels.contract import ChannelUnavailableError
from penstock.engines.spark.reading.shares import range_bounds
from penstock.engines.spark.storage.column_names import map_in_arrow, quoted
from penstock.engines.spark.storage.row_files import FILE_REPORT, RowFile, RowSlice, cast_batch, split_files

_GROUP = "__penstock_group"
_RECORD_BYTES = 512 << 10  # approximate; the cost per record is negligible at this size, and many fit a fetch
_MAX_VALUE_BYTES = MAX_RECORD_BYTES - (64 << 10)  # the rest is for the key and the framing


class TopicStore:
    """Stores the rows of a channel in `groups` partitions of a topic. `keys` are the columns of its readers' keys."""

    def __init__(self, cluster: KafkaCluster, topic: str, groups: int, keys: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._groups = groups
        self._keys = keys

    def create(self) -> None:
        Topic(self._cluster, self._topic).create(
            self._groups,
            **{
                # Kafka must not delete unread rows; read rows are deleted on request, by segments. A cluster that
                # compacts by default would delete the first of two attempts, which is the one that counts.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "segment.bytes": str(MAX_RECORD_BYTES + (1 << 20)),  # the minimum that fits any record
                "max.message.bytes": str(MAX_RECORD_BYTES),
            },
        )

    def write(self, df: DataFrame, key: str) -> list[RowFile]:
        cluster, topic, groups, keyed = self._cluster, self._topic, self._groups, bool(self._keys)
        if keyed:
            df = df.withColumn(_GROUP, F.pmod(F.hash(*map(quoted, self._keys)), F.lit(groups)))

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None, "this function runs in a Spark task"
            task = context.partitionId()
            writer = _Writer(cluster, topic, f"{key}/{task}")
            turn = task
            for batch in batches:
                if keyed:
                    group = batch.column(batch.num_columns - 1)
                    rows = batch.select(batch.schema.names[:-1])
                    for number in pc.unique(group).to_pylist():
                        writer.add(number, rows.filter(pc.equal(group, number)))
                else:
                    writer.add(turn % groups, batch)
                    turn += 1
            records_written = writer.close()
            if records_written:
                addresses, counts, sizes = zip(*records_written, strict=True)
                yield pa.RecordBatch.from_pydict(
                    {"file": list(addresses), "rows": list(counts), "bytes": list(sizes)},
                    schema=pa.schema([("file", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]),
                )

        written = [RowFile(row.file, row.rows, row.bytes) for row in map_in_arrow(df, write, FILE_REPORT).collect()]
        return sorted(written, key=lambda file: _address(file.path))

    def split(self, files: Sequence[RowFile], replicas: int, shares: Sequence[float] = ()) -> list[list[RowSlice]]:
        """
        Unequal shares are ranges of all rows, or whole groups if the rows are read by key.

        >>> files = [RowFile(f"{group}:0", 2, 0) for group in range(4)]
        >>> store = TopicStore(KafkaCluster(bootstrap_servers=""), "t", 4, ())
        >>> [[(piece.path, piece.rows) for piece in part] for part in store.split(files, 2)]
        [[('0:0', 2), ('1:0', 2)], [('2:0', 2), ('3:0', 2)]]
        >>> [[(piece.path, piece.rows) for piece in part] for part in store.split(files, 5)]
        [[('0:0', 2)], [('1:0', 2)], [('2:0', 2)], [('3:0', 1)], [('3:0', 1)]]
        """
        by_group: dict[int, list[RowFile]] = {}
        for file in sorted(files, key=lambda file: _address(file.path)):
            by_group.setdefault(_address(file.path)[0], []).append(file)
        parts: list[list[RowSlice]] = [[] for _ in range(replicas)]
        if shares and not self._keys:
            in_order = [file for group in sorted(by_group) for file in by_group[group]]
            return split_files(in_order, range_bounds(sum(file.rows for file in in_order), replicas, shares))
        bounds = range_bounds(self._groups, replicas, shares)
        for group, group_files in by_group.items():
            low = bisect.bisect_right(bounds, group) - 1 if shares else group * replicas // self._groups
            high = (group + 1) * replicas // self._groups
            readers = 1 if self._keys else max(1, high - low)
            rows = sum(file.rows for file in group_files)
            for number, part in enumerate(split_files(group_files, range_bounds(rows, readers))):
                parts[low + number] += part
        return parts

    def read(self, slices: Iterable[RowSlice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted: dict[tuple[int, int], RowSlice] = {_address(piece.path): piece for piece in slices}
        spans: dict[int, Span] = {}
        for group, offset in sorted(wanted):
            first = spans[group].start if group in spans else offset
            spans[group] = Span(group, first, offset + 1)
        left = set(wanted)
        for fetched in records(self._cluster, self._topic, list(spans.values())):
            for record in fetched:
                address = (record.partition(), record.offset())
                if address in left:
                    left.remove(address)
                    piece = wanted[address]
                    with pa.ipc.open_stream(record.value()) as stream:
                        yield cast_batch(stream.read_next_batch().slice(piece.skip, piece.rows), schema)
        if left:
            raise PenstockError(
                f"records {sorted(left)[:3]} of topic '{self._topic}' were deleted before they were read; the run "
                "cannot continue, because Penstock needs all records of its own topics; begin a new run"
            )

    def discard(self, files: Sequence[RowFile]) -> None:
        """Do nothing: Kafka cannot delete single records. They are deleted with the records around them."""

    def delete(self, files: Sequence[RowFile]) -> None:
        """Delete every record up to the last of these, as Kafka deletes from the beginning only."""
        before: dict[int, int] = {}
        for file in files:
            group, offset = _address(file.path)
            before[group] = max(before.get(group, 0), offset + 1)
        if before:
            _topic(self._cluster, self._topic).delete_records_before(before)

    def check_available(self) -> None:
        from confluent_kafka import KafkaException

        try:
            _topic(self._cluster, self._topic).ends(timeout_s=2.0)
        except (KafkaException, TimeoutError):
            raise ChannelUnavailableError(
                f"channel '{self._topic}': no Kafka broker answers at '{self._cluster.bootstrap_servers}'"
            ) from None

    def delete_all(self) -> None:
        from confluent_kafka import KafkaException

        try:
            _topic(self._cluster, self._topic).delete()
        except (KafkaException, TimeoutError) as error:
            raise ChannelUnavailableError(f"topic '{self._topic}' cannot be deleted now: {error}") from None


def halved(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split rows into parts of about the size of a record, and of at least one row. Row sizes may differ a lot.

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
    """Collects the rows of a task by group, sends them as records, and reports the addresses of the records."""

    def __init__(self, cluster: KafkaCluster, topic: str, name: str) -> None:
        self._producer = producer(cluster)
        self._topic = topic
        self._name = name
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._sizes: dict[int, int] = {}
        self._number = 0
        self._written: list[tuple[str, int, int]] = []
        self._failed: list[Any] = []

    def add(self, group: int, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(group, []).append(rows)
        self._sizes[group] = self._sizes.get(group, 0) + rows.nbytes
        if self._sizes[group] >= _RECORD_BYTES:
            self._send(group)

    def close(self) -> list[tuple[str, int, int]]:
        for group in list(self._waiting):
            self._send(group)
        self._producer.flush()
        if self._failed or len(self._written) != self._number:
            producer.cache_clear()  # a client does not recover from a permanent failure
            why = self._failed[0].str() if self._failed else "the broker did not confirm them"
            raise PenstockError(f"rows cannot be written to topic '{self._topic}': {why}")
        return self._written

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
        if len(value) > _MAX_VALUE_BYTES:
            raise PenstockError(
                f"a row of {len(value):,} bytes is larger than the limit of {_MAX_VALUE_BYTES:,} bytes for a channel "
                "in Kafka; make the row smaller, or use the channel 'embedded'"
            )

        def delivered(error: Any, record: Any) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                self._written.append((f"{group}:{record.offset()}", rows.num_rows, len(value)))

        key = f"{self._name}/{self._number}"
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition=group, on_delivery=delivered)
                break
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as refused:  # the client knows that the topic cannot be written
                self._failed.append(refused.args[0])
                break
        self._number += 1
        self._producer.poll(0)


_topics: dict[tuple[KafkaCluster, str], Topic] = {}  # one per process, because a client cannot be pickled


def _topic(cluster: KafkaCluster, name: str) -> Topic:
    return _topics.setdefault((cluster, name), Topic(cluster, name))


def _address(path: str) -> tuple[int, int]:
    group, _, offset = path.partition(":")
    return int(group), int(offset)
