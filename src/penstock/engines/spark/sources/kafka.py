"""A Kafka topic as a source. The offset is {"0": n, "1": m, ...}: of each partition the record to come next.

A Python source reads it, not Spark's own connector: so it has what all sources of Penstock have, which is a gate,
exactly k replicas, batches sized by their time, and a place to start that is named after the query was compiled.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import Span, records
from penstock.brokers.topics import Offsets, Topic
from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.dataflow.kafka import Kafka
from penstock.engines.spark.compile.clocks import ReadingTime
from penstock.engines.spark.reading.batch_size import BatchSizer
from penstock.engines.spark.reading.data_source import data_source
from penstock.engines.spark.reading.gate import Gate, Tick, load_start
from penstock.engines.spark.sources.contract import Offset, Reading
from penstock.engines.spark.sources.decoding import Decoder
from penstock.engines.spark.sources.json_rows import row_type
from penstock.engines.spark.storage.files import write_whole
from penstock.engines.spark.storage.row_files import arrow_schema

_LOOK_S = 0.05  # Spark asks every 10 ms when idle, and a look asks the broker
_SHORTER_S = 10.0
_AWAY_S = 1.0  # a broker that did not answer is not asked again for so long


class KafkaSource:
    def __init__(self, name: str, folder: Path, schema: StructType, declared: Kafka) -> None:
        self._name = name
        self._schema = schema
        self._declared = declared
        self._moments = folder / f"{name}.appended"
        self._noted = folder / f"{name}.topic.json"
        if declared.format == "json":
            _check_json(name, schema)
        cluster = _cluster(declared)
        topic = Topic(cluster, declared.topic)
        topic.required(f"source '{name}'")
        self._known = Known(topic=topic.name, id=str(topic.id))
        self._ends = Ends(topic, self._known.id)
        if declared.dead_letter is not None and not declared.silent:
            Topic(cluster, declared.dead_letter).required(f"the dead letters of source '{name}'")

    def read(self, spark: SparkSession, how: Reading) -> DataFrame:
        source = _source_class(self._name, self._schema, self._declared)
        spark.dataSource.register(source)
        options = how.options() | {"appended": str(self._moments), "topic_id": self._known.id}
        return spark.readStream.format(source.name()).name(how.name).options(**options).load()

    def first(self) -> Offset:
        from confluent_kafka import KafkaException

        topic = self._ends.topic
        topic.required(f"source '{self._name}'")
        write_whole(self._noted, msgspec.json.encode(self._known))
        try:
            found = topic.starts() if self._declared.start == "earliest" else topic.ends()
        except (KafkaException, TimeoutError):
            raise self._unanswered() from None
        return {str(partition): offset for partition, offset in found.items()}

    def available(self) -> Offset:
        """Raises while no broker answers: what is measured then would be stale."""
        ends = self._ends.look()
        if ends is None:
            raise self._unanswered()
        return {str(partition): offset for partition, offset in ends.items()}

    def _unanswered(self) -> PenstockError:
        topic = self._ends.topic
        why = f"there is no topic '{topic.name}'" if topic.missing else "no Kafka broker answers"
        return PenstockError(f"source '{self._name}': {why} at '{self._declared.bootstrap_servers}'")

    def rows_between(self, start: Offset, end: Offset) -> int:
        """Offsets passed: marks of transactions count, which are one or so a batch of whoever writes in them."""
        return sum(max(0, stop - start.get(partition, 0)) for partition, stop in end.items())

    def append_times(self, start: Offset, end: Offset) -> list[tuple[float, int]] | None:
        """By the records' own timestamps, as the tasks that read them noted."""
        found: list[tuple[float, int]] = []
        for path in self._moments.glob("[0-9]*-*-*"):  # not those that are being written
            partition, low, high = (int(word) for word in path.name.split("-"))
            begun, stop = start.get(str(partition), 0), end.get(str(partition), 0)
            if high <= begun:
                path.unlink(missing_ok=True)  # windows go forward: nobody asks for these again
            elif begun <= low and high <= stop:
                found += msgspec.json.decode(path.read_bytes(), type=list[tuple[float, int]])
        return found or None

    def size_of(self, rows: int) -> tuple[int, int]:
        """Keys and values, as they come over the wire."""
        topic = self._ends.topic
        starts, ends = topic.starts(), topic.ends()
        each = -(-rows // max(1, len(ends)))
        spans = [Span(part, starts[part], min(end, starts[part] + each)) for part, end in ends.items()]
        found = [one for some in records(topic.cluster, topic.name, spans) for one in some]
        return sum(len(one.key() or b"") + len(one.value() or b"") for one in found), len(found)

    def resume(self, read_up_to: Offset) -> None:
        """Records wait for as long as the topic keeps them; offsets of one topic say nothing of another."""
        try:
            before = msgspec.json.decode(self._noted.read_bytes(), type=Known)
        except FileNotFoundError:  # begun before topics were noted
            before = self._known
            write_whole(self._noted, msgspec.json.encode(before))
        if before != self._known:
            raise PenstockError(
                f"source '{self._name}': topic '{self._known.topic}' at '{self._declared.bootstrap_servers}' is not "
                f"the topic '{before.topic}' that this run has read so far, but another or a recreated one; "
                "give it that one, or begin a new run in another directory"
            )

    def set_rate(self, rows_per_s: float) -> None:
        raise PenstockError(f"source '{self._name}' reads a Kafka topic: its rate is that of whoever writes to it")

    def ended(self, at: Offset) -> bool:
        """All that has come so far; more may come at any time."""
        ends = self._ends.look()
        return ends is not None and all(at.get(str(partition), 0) == end for partition, end in ends.items())


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A topic by its name and by the id that its cluster gave it, which another of that name would not have."""

    topic: str
    id: str


class Ends:
    """Where a topic ends; asked for now and then, and known to be unknown while no broker answers.

    Raises one clear error where the topic is gone, or is not the one of this id any more.
    """

    def __init__(self, topic: Topic, id: str) -> None:
        self.topic = topic
        self._id = id
        self._asked_at = float("-inf")
        self._again_s = 0.0
        self._found: Offsets | None = None

    def look(self) -> Offsets | None:
        from confluent_kafka import KafkaException

        if time.monotonic() - self._asked_at > self._again_s:
            try:
                self._found = self.topic.ends(timeout_s=2.0) or None
            except (KafkaException, TimeoutError):
                self._found = None
            if self._found is None:
                self.topic.require_still(timeout_s=2.0)
            elif self.topic.id != self._id:
                raise PenstockError(
                    f"topic '{self.topic.name}' at '{self.topic.cluster.bootstrap_servers}' was deleted and created "
                    "again while it was read; begin a new run in another directory"
                )
            self._again_s = _LOOK_S if self._found is not None else _AWAY_S
            self._asked_at = time.monotonic()
        return self._found


class Share(InputPartition):
    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans


class KafkaReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str], declared: Kafka, schema: pa.Schema) -> None:
        self._gate = Gate(options["run"], options["query"], int(options["opens_at"]))
        self._where = (options["run"], options["query"], options["name"])
        self._tick = Tick(options["tick"])
        self._replicas = int(options["replicas"])
        self._sizer = BatchSizer.of(options)
        self._time = ReadingTime(Path(options["timings"]))
        self._appended = options["appended"]
        self._topic_id = options["topic_id"]
        self._declared = declared
        self._schema = schema
        self._ends: Ends | None = None  # a client does not travel to workers
        self._shorter_since_s: float | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        return load_start(*self._where)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._gate.closed():
            return start
        if self._ends is None:
            self._ends = Ends(Topic(_cluster(self._declared), self._declared.topic), self._topic_id)
        ends = self._ends.look()
        if ends is None:
            self._shorter_since_s = None  # when it is back, it may again not know at once how far its topics go
            return start
        at = {int(partition): offset for partition, offset in start.items() if partition.isdigit()}
        at = dict.fromkeys(ends, 0) | at  # what is new since the start has records from 0 on
        if any(ends.get(partition, -1) < offset for partition, offset in at.items()):
            self._wait_for_what_was_read()
            return start
        self._shorter_since_s = None
        backlog = {partition: ends[partition] - offset for partition, offset in at.items()}
        total = sum(backlog.values())
        if total == 0:
            return self._tick.on({str(partition): offset for partition, offset in at.items()})
        room = min(total, self._sizer.room())
        # Each partition gives its part of the backlog, rounded up so that none waits for ever.
        given = {partition: -(-waiting * room // total) for partition, waiting in backlog.items()}
        self._sizer.gave(sum(given.values()), left=room < total)
        return self._tick.on({str(partition): at[partition] + given[partition] for partition in at})

    def _wait_for_what_was_read(self) -> None:
        """A broker that has just come back may not know yet how far its topics go; then they are not the same."""
        now_s = time.monotonic()
        if self._shorter_since_s is None:
            self._shorter_since_s = now_s
        if now_s - self._shorter_since_s > _SHORTER_S:
            raise PenstockError(
                f"topic '{self._declared.topic}' ends before the records that were read of it: it was deleted and "
                "created again, or lost records; begin a new run in another directory"
            )

    def partitions(self, start: Offset, end: Offset) -> list[Share]:
        spans = [Span(int(name), start.get(name, 0), stop) for name, stop in end.items() if name.isdigit()]
        return [Share(part) for part in shared(spans, self._replicas)]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        return self._time.over(self._batches(partition.spans))

    def _batches(self, spans: list[Span]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self._declared, _cluster(self._declared), self._schema)
        moments: list[tuple[float, int]] = []
        for some in records(_cluster(self._declared), self._declared.topic, spans):
            first_ms, last_ms = some[0].timestamp()[1], some[-1].timestamp()[1]
            moments.append(((first_ms + last_ms) / 2000, len(some)))
            yield decoder.batch(some)
        decoder.done()
        if moments:
            last = max((span for span in spans if span.start < span.stop), key=lambda span: span.partition)
            name = f"{last.partition}-{last.start}-{last.stop}"
            write_whole(Path(self._appended) / name, msgspec.json.encode(moments))


def shared(spans: Sequence[Span], replicas: int) -> list[list[Span]]:
    """Exactly so many shares of about equal size. A partition is cut where shares meet, and nowhere else.

    >>> shared([Span(0, 0, 4), Span(1, 10, 14)], 2)
    [[Span(partition=0, start=0, stop=4)], [Span(partition=1, start=10, stop=14)]]
    >>> [sum(span.stop - span.start for span in part) for part in shared([Span(0, 0, 7), Span(1, 0, 1)], 3)]
    [2, 3, 3]
    """
    total = sum(span.stop - span.start for span in spans)
    bounds = [total * part // replicas for part in range(replicas + 1)]
    parts: list[list[Span]] = []
    for low, high in itertools.pairwise(bounds):
        part, begin = [], 0
        for span in sorted(spans, key=lambda one: one.partition):
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


def _source_class(name: str, schema: StructType, declared: Kafka) -> type[DataSource]:
    arrow = arrow_schema(schema)
    return data_source(f"penstock_source_{name}", schema, lambda options: KafkaReader(options, declared, arrow))
