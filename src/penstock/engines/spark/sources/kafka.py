"""A Kafka topic as a source. The offset maps each partition to its next record: {"0": n, "1": m, ...}.

A Python source reads the topic instead of Spark's connector. Like all sources of Penstock it has a gate, exactly k
replicas, batches sized by their duration, and a start offset that is set after the query was compiled.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import Span, records
from penstock.brokers.topics import Offsets, Topic
from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.dataflow.kafka import Kafka
from penstock.engines.spark.reading.offsets import Offset
from penstock.engines.spark.reading.reader import ReaderOptions, StreamReader, data_source, open_stream
from penstock.engines.spark.reading.shares import range_bounds
from penstock.engines.spark.sources.contract import SampleSize
from penstock.engines.spark.sources.decoding import RecordDecoder
from penstock.engines.spark.sources.json_rows import row_type
from penstock.engines.spark.storage.atomic_files import write_atomically
from penstock.engines.spark.storage.row_files import arrow_schema

_POLL_INTERVAL_S = 0.05  # Spark asks every 10 ms when idle, and each answer asks the broker
_RETRY_INTERVAL_S = 1.0  # after a broker did not respond
_SHORTENED_TIMEOUT_S = 10.0  # how long a topic may end before records that were read from it


class KafkaSource:
    def __init__(self, name: str, folder: Path, schema: StructType, declared: Kafka) -> None:
        """Raises PenstockError if the topic, or the topic of dead letters, does not exist or no broker responds."""
        self._name = name
        self._schema = schema
        self._declared = declared
        self._append_times = folder / f"{name}.append_times"
        self._identity_file = folder / f"{name}.topic.json"
        if declared.format == "json":
            _check_json(name, schema)
        cluster = _cluster(declared)
        topic = Topic(cluster, declared.topic)
        topic.required(f"source '{name}'")
        self._identity = TopicIdentity(topic=topic.name, id=str(topic.id))
        self._ends = TopicEnds(topic, self._identity.id)
        if declared.dead_letter is not None and declared.writes_dead_letters:
            Topic(cluster, declared.dead_letter).required(f"the dead letters of source '{name}'")

    def read(self, spark: SparkSession, options: ReaderOptions) -> DataFrame:
        topic = TopicReading(declared=self._declared, id=self._identity.id, append_times=self._append_times)
        arrow = arrow_schema(self._schema)

        def create_reader(options: dict[str, str]) -> KafkaReader:
            return KafkaReader(options, topic, arrow)

        return open_stream(spark, data_source(f"penstock_source_{self._name}", self._schema, create_reader), options)

    def first(self) -> Offset:
        from confluent_kafka import KafkaException

        topic = self._ends.topic
        topic.required(f"source '{self._name}'")
        write_atomically(self._identity_file, msgspec.json.encode(self._identity))
        try:
            offsets = topic.starts() if self._declared.start == "earliest" else topic.ends()
        except (KafkaException, TimeoutError):
            raise self._unavailable() from None
        return {str(partition): offset for partition, offset in offsets.items()}

    def available(self) -> Offset:
        ends = self._ends.poll()
        if ends is None:
            raise self._unavailable()
        return {str(partition): offset for partition, offset in ends.items()}

    def _unavailable(self) -> PenstockError:
        topic = self._ends.topic
        reason = f"there is no topic '{topic.name}'" if topic.missing else "no Kafka broker answers"
        return PenstockError(f"source '{self._name}': {reason} at '{self._declared.bootstrap_servers}'")

    def rows_between(self, start: Offset, end: Offset) -> int:
        """Count offsets. This includes transaction markers, about one per transaction of a producer."""
        return sum(max(0, stop - start.get(partition, 0)) for partition, stop in end.items())

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]] | None:
        """Return the timestamps of the records, as saved by the tasks that read them."""
        times: list[tuple[float, int]] = []
        for path in self._append_times.glob("[0-9]*-*-*"):  # skips files that are being written
            partition, low, high = (int(number) for number in path.name.split("-"))
            first, stop = start.get(str(partition), 0), end.get(str(partition), 0)
            if high <= first:
                path.unlink(missing_ok=True)  # windows move forward, so these are not needed again
            elif first <= low and high <= stop:
                times += msgspec.json.decode(path.read_bytes(), type=list[tuple[float, int]])
        return times or None

    def sample_size(self, rows: int) -> SampleSize:
        """Return the size of keys and values as Kafka sends them."""
        topic = self._ends.topic
        starts, ends = topic.starts(), topic.ends()
        per_partition = -(-rows // max(1, len(ends)))
        spans = [Span(part, starts[part], min(end, starts[part] + per_partition)) for part, end in ends.items()]
        sample = [record for fetched in records(topic.cluster, topic.name, spans) for record in fetched]
        return SampleSize(sum(len(record.key() or b"") + len(record.value() or b"") for record in sample), len(sample))

    def resume(self, read_up_to: Offset) -> None:
        """Check that the topic is the one that the run has read, because offsets are valid for one topic only."""
        before = msgspec.json.decode(self._identity_file.read_bytes(), type=TopicIdentity)
        if before != self._identity:
            raise PenstockError(
                f"source '{self._name}': topic '{self._identity.topic}' at '{self._declared.bootstrap_servers}' is not "
                f"the topic '{before.topic}' that this run has read, or it was deleted and created again; declare that "
                "topic, or begin a new run in another directory"
            )

    def start_clock(self) -> None:
        """Do nothing: other programs append the records."""

    def set_rate(self, rows_per_s: float) -> None:
        raise PenstockError(
            f"source '{self._name}' reads a Kafka topic: its rate is that of the topic's producers; change it there"
        )

    def has_ended(self, at: Offset) -> bool:
        """Return whether all records so far have been read; more may be appended at any time."""
        ends = self._ends.poll()
        return ends is not None and all(at.get(str(partition), 0) == end for partition, end in ends.items())


class TopicIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a topic and the id that its cluster gave it. A topic that is created again has another id."""

    topic: str
    id: str


class TopicEnds:
    """The end offsets of a topic, requested at intervals."""

    def __init__(self, topic: Topic, id: str) -> None:
        self.topic = topic
        self._id = id
        self._polled_at = float("-inf")
        self._interval_s = 0.0
        self._ends: Offsets | None = None

    def poll(self) -> Offsets | None:
        """Return the end of each partition, or None while no broker responds.

        Raises PenstockError if the topic was deleted, or deleted and created again.
        """
        from confluent_kafka import KafkaException

        if time.monotonic() - self._polled_at > self._interval_s:
            try:
                self._ends = self.topic.ends(timeout_s=2.0) or None
            except (KafkaException, TimeoutError):
                self._ends = None
            if self._ends is None:
                self.topic.require_exists(timeout_s=2.0)
            elif self.topic.id != self._id:
                raise PenstockError(
                    f"topic '{self.topic.name}' at '{self.topic.cluster.bootstrap_servers}' was deleted and created "
                    "again while it was read; begin a new run in another directory"
                )
            self._interval_s = _POLL_INTERVAL_S if self._ends is not None else _RETRY_INTERVAL_S
            self._polled_at = time.monotonic()
        return self._ends


class TopicReading(msgspec.Struct, frozen=True, kw_only=True):
    """The topic that a reader reads, and the folder in which it saves the append times of records."""

    declared: Kafka
    id: str
    append_times: Path


class KafkaPartition(InputPartition):
    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans


class KafkaReader(StreamReader):
    def __init__(self, options: dict[str, str], topic: TopicReading, schema: pa.Schema) -> None:
        super().__init__(options)
        self._topic = topic
        self._schema = schema
        self._ends: TopicEnds | None = None  # created when needed, because a Kafka client cannot be pickled
        self._shortened_since_s: float | None = None

    def next_offset(self, start: Offset) -> Offset | None:
        declared = self._topic.declared
        if self._ends is None:
            self._ends = TopicEnds(Topic(_cluster(declared), declared.topic), self._topic.id)
        ends = self._ends.poll()
        if ends is None:
            self._shortened_since_s = None  # a restarted broker may again not know the ends of its topics at once
            return None
        at = dict.fromkeys(ends, 0) | {int(partition): offset for partition, offset in start.items()}
        if any(ends.get(partition, -1) < offset for partition, offset in at.items()):
            self._check_shortened()
            return None
        self._shortened_since_s = None
        backlog = {partition: ends[partition] - offset for partition, offset in at.items()}
        total = sum(backlog.values())
        if total == 0:
            return {str(partition): offset for partition, offset in at.items()}
        limit = min(total, self.sizer.limit())
        # Each partition gives its share of the backlog, rounded up so that no partition waits forever.
        taken = {partition: -(-waiting * limit // total) for partition, waiting in backlog.items()}
        self.sizer.took(sum(taken.values()), rows_left=limit < total)
        return {str(partition): at[partition] + taken[partition] for partition in at}

    def _check_shortened(self) -> None:
        """Wait for a restarted broker to learn the ends of its topics; raise PenstockError if it takes too long."""
        now_s = time.monotonic()
        if self._shortened_since_s is None:
            self._shortened_since_s = now_s
        if now_s - self._shortened_since_s > _SHORTENED_TIMEOUT_S:
            raise PenstockError(
                f"topic '{self._topic.declared.topic}' ends before records that were already read from it: it was "
                "deleted and created again, or it lost records; begin a new run in another directory"
            )

    def partitions(self, start: Offset, end: Offset) -> list[KafkaPartition]:
        spans = [Span(int(name), start.get(name, 0), stop) for name, stop in end.items() if name.isdigit()]
        return [KafkaPartition(part) for part in split_spans(spans, self.replicas, self.shares)]

    def batches(self, partition: KafkaPartition) -> Iterator[pa.RecordBatch]:
        declared = self._topic.declared
        decoder = RecordDecoder(declared, _cluster(declared), self._schema)
        times: list[tuple[float, int]] = []
        for fetched in records(_cluster(declared), declared.topic, partition.spans):
            first_ms, last_ms = fetched[0].timestamp()[1], fetched[-1].timestamp()[1]
            times.append(((first_ms + last_ms) / 2000, len(fetched)))
            yield decoder.batch(fetched)
        decoder.close()
        if times:
            spans = [span for span in partition.spans if span.start < span.stop]
            last = max(spans, key=lambda span: span.partition)
            file = self._topic.append_times / f"{last.partition}-{last.start}-{last.stop}"
            write_atomically(file, msgspec.json.encode(times))


def split_spans(spans: Sequence[Span], replicas: int, shares: Sequence[float] = ()) -> list[list[Span]]:
    """Return exactly `replicas` parts with these shares. A partition is divided only where two parts meet.

    >>> split_spans([Span(0, 0, 4), Span(1, 10, 14)], 2)
    [[Span(partition=0, start=0, stop=4)], [Span(partition=1, start=10, stop=14)]]
    >>> [sum(span.stop - span.start for span in part) for part in split_spans([Span(0, 0, 7), Span(1, 0, 1)], 3)]
    [2, 3, 3]
    """
    total = sum(span.stop - span.start for span in spans)
    bounds = range_bounds(total, replicas, shares)
    parts: list[list[Span]] = []
    for low, high in itertools.pairwise(bounds):
        part, begin = [], 0
        for span in sorted(spans, key=lambda span: span.partition):
            size = span.stop - span.start
            start, stop = max(low, begin), min(high, begin + size)
            if start < stop:
                part.append(Span(span.partition, span.start + start - begin, span.start + stop - begin))
            begin += size
        parts.append(part)
    return parts


def _check_json(name: str, schema: StructType) -> None:
    try:
        row_type(arrow_schema(schema))
    except DataflowError as error:
        raise DataflowError(f"source '{name}': {error}") from None


def _cluster(declared: Kafka) -> KafkaCluster:
    return KafkaCluster(bootstrap_servers=declared.bootstrap_servers, options=declared.options)
