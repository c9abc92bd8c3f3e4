"""A Kafka topic as a sink: each batch is one transaction, which also says which batch it is.

Tasks write their records aside, and the driver's one producer sends them: a transaction belongs to one producer, and
Spark's own sink, which has one a task and no transactions, may write a batch twice. The mark of the last batch is a
committed offset of a consumer group that nobody joins, and is part of the transaction: both are there or neither is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from penstock.brokers.cluster import KafkaCluster, refused
from penstock.brokers.patience import Result, within
from penstock.brokers.records import LARGEST_RECORD, ROOM, append
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.dataflow.kafka import Kafka
from penstock.engines.spark.channels.files import write_rows
from penstock.engines.spark.storage.column_names import quoted
from penstock.engines.spark.storage.row_files import RowFile

_PATIENCE_S = 600.0
_CONFIRM_S = 60.0  # for all records of a batch
_ANSWER_S = 20.0  # for one call: what takes longer is tried again by another client
_FAREWELL_S = 5.0  # the same, while the query is being stopped
_ECHO_S = 60.0  # after the last client was given up, what it has asked for may still come about


class KafkaSink:
    """Writes in the order of its calls. `name` is this sink's own in the cluster, and stays over restarts.

    A broker that is away is waited for, unless `stopping`: Spark waits for a batch when a query is stopped.
    """

    _latest: ClassVar[dict[str, KafkaSink]] = {}  # of this process, by name
    _given_up_s: ClassVar[dict[str, float]] = {}  # when a client of that name last was

    def __init__(self, sink: Kafka, name: str, aside: Path, stopping: Callable[[], bool]) -> None:
        self._sink = sink
        self._name = name
        self._aside = aside
        self._stopping = stopping
        self._cluster = KafkaCluster(bootstrap_servers=sink.bootstrap_servers, options=sink.options)
        self._topic = Topic(self._cluster, sink.topic)
        self._producer: Any = None
        self._disturbed = False  # a broker was lost since the producer has found its own
        self._opened = False
        self._group: Any = None
        self._last: str | None = None  # the key of the last batch that is there
        aside.mkdir(parents=True, exist_ok=True)

    def __call__(self, df: DataFrame, key: str) -> int:
        files = write_rows(df.select(*record(df, self._sink)), self._aside)
        try:
            self._publish(files, key)
        finally:
            for file in files:
                Path(file.path).unlink(missing_ok=True)
        return sum(file.rows for file in files)

    def _publish(self, files: list[RowFile], key: str) -> None:
        """Until the batch is there, once: the rows are at hand, and a transaction that failed has left nothing."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._renew()
                if not _follows(key, self._last):
                    return
                self._transaction(files, key)
                self._last = key
                return
            except KafkaException as error:
                cause, now_s = error.args[0], time.monotonic()
                if cause.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                    # A broker that is back answers those who asked it before, too, and the last one shuts out the rest.
                    if now_s - self._given_up_s.get(self._name, float("-inf")) > _ECHO_S:
                        raise PenstockError(
                            f"another query has taken over the writing to '{self._sink.topic}'"
                        ) from None
                else:
                    self._given_up_s[self._name] = now_s
                self._producer = None  # a new one ends what the old one has left open
                if refused(cause) or now_s > deadline or self._stopping():
                    raise PenstockError(
                        f"topic '{self._sink.topic}' at '{self._cluster.bootstrap_servers}' cannot be written: "
                        f"{cause.str()}"
                    ) from None
                self._wait()

    def _renew(self) -> None:
        """A producer that has lost its broker may never hear of a coordinator again; another one asks anew."""
        if self._producer is not None:
            self._producer.poll(0)
            if self._disturbed:
                self._producer = None
        if self._producer is None:
            self._open()

    def _answer(self, call: Callable[..., Result], *given: Any) -> Result:
        return within(lambda: _FAREWELL_S if self._stopping() else _ANSWER_S, call, *given)

    def _lost_broker(self, error: Any) -> None:
        self._disturbed = True

    def _wait(self) -> None:
        """Before the next try; a topic that is not there comes back in a moment or never."""
        while True:
            time.sleep(0.5)
            self._topic.require_still(timeout_s=2.0)
            if not self._topic.missing or self._stopping():
                return

    def _open(self) -> None:
        from confluent_kafka import Consumer, KafkaException, Producer

        if self._latest.setdefault(self._name, self) is not self:
            if self._opened:  # a query that was stopped goes on for a moment: it must not shut out its heir
                raise PenstockError(f"another query has taken over the writing to '{self._sink.topic}'")
            self._latest[self._name] = self
        self._opened = True
        producer = self._cluster.client(
            Producer,
            **{
                "transactional.id": self._name,
                "transaction.timeout.ms": 300_000,
                "message.max.bytes": LARGEST_RECORD,
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 2 * ROOM,
                "delivery.report.only.error": True,
                "reconnect.backoff.max.ms": 1000,
                "error_cb": self._lost_broker,
            },
        )
        self._answer(producer.init_transactions, 10.0)
        group = {"group.id": self._name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._group = self._cluster.client(Consumer, **group)
        (mark,) = self._answer(self._group.committed, [self._mark()], 10.0)
        if mark.error is not None:  # else it would pass for a sink that has written nothing
            raise KafkaException(mark.error)
        self._last = mark.metadata
        self._producer = producer
        producer.poll(0)
        self._disturbed = False  # it has found its brokers, though others that it was given may be down

    def _transaction(self, files: list[RowFile], key: str) -> None:
        from confluent_kafka import KafkaError, KafkaException

        producer, lost = self._producer, list[Any]()
        producer.begin_transaction()
        for file in files:
            with pa.memory_map(file.path) as source, pa.ipc.open_file(source) as rows:
                for number in range(rows.num_record_batches):
                    batch = rows.get_batch(number)
                    keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
                    some = [{"key": one, "value": value} for one, value in zip(keys, values, strict=True)]
                    append(producer, self._sink.topic, some, lost, waiting=self._require_going_on)
        deadline = time.monotonic() + _CONFIRM_S
        # A commit would wait for records behind one that is refused, and not say why it was, and for a broker that is
        # away while the run is to stop.
        while not lost and (left := producer.flush(0.2)):
            self._require_going_on()
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left:,} records are not confirmed"))
        if lost:
            raise KafkaException(lost[0])
        if self._disturbed:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the broker was lost in the middle of a batch"))
        group = self._group.consumer_group_metadata()
        self._answer(producer.send_offsets_to_transaction, [self._mark(key)], group, _ANSWER_S)
        self._answer(producer.commit_transaction, _ANSWER_S)  # flushes first, and fails if a record did

    def _require_going_on(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if self._stopping():
            left = f"{len(self._producer):,} records are not confirmed"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, left))

    def _mark(self, key: str | None = None) -> Any:
        from confluent_kafka import TopicPartition

        if key is None:
            return TopicPartition(self._sink.topic, 0)
        return TopicPartition(self._sink.topic, 0, int(key.rpartition(".")[2]), metadata=key)


def _follows(key: str, last: str | None) -> bool:
    """Whether a batch is still to be written; Spark never repeats one before the last.

    >>> _follows("a.00000002", "a.00000001"), _follows("a.00000001", "a.00000001"), _follows("b.00000000", "a.00000001")
    (True, False, True)
    """
    checkpoint, _, number = key.rpartition(".")
    before, _, latest = (last or "").rpartition(".")
    return checkpoint != before or int(number) > int(latest)


def record(df: DataFrame, sink: Kafka) -> list[Column]:
    """Key and value of a row's record."""
    if sink.key is not None and sink.key not in df.columns:
        raise DataflowError(
            f"the sink to topic '{sink.topic}' is keyed by '{sink.key}', which is not among its columns "
            f"{', '.join(df.columns)}"
        )
    key = F.col(quoted(sink.key)).cast("string").cast("binary") if sink.key is not None else None
    if sink.format == "json":
        value = F.to_json(F.struct(*map(quoted, df.columns))).cast("binary")
    elif sink.format == "text":
        if len(df.columns) != 1:
            raise DataflowError(
                f"the sink to topic '{sink.topic}' writes text, which is one column, and is given "
                f"{', '.join(df.columns)}; give it format='json'"
            )
        value = F.col(quoted(df.columns[0])).cast("string").cast("binary")
    else:
        if "value" not in df.columns or not isinstance(df.schema["value"].dataType, BinaryType):
            raise DataflowError(f"the sink to topic '{sink.topic}' writes bytes, and needs a column 'value binary'")
        value = F.col("value")
        key = key if key is not None or "key" not in df.columns else F.col("key").cast("binary")
    return [(F.lit(None).cast("binary") if key is None else key).alias("key"), value.alias("value")]
