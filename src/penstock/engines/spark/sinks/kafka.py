"""A Kafka topic as a sink: each batch is one transaction.

Tasks write their records to files, and a single producer in the driver sends them, because a transaction belongs to one
producer. Spark's own sink has one producer per task and no transactions, so it may write a batch twice. The key of the
last batch is kept as the committed offset of a consumer group without members. It is part of the transaction, so that
Kafka stores both or neither.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from penstock.brokers.call_timeout import Result, call_with_timeout
from penstock.brokers.cluster import KafkaCluster, is_fenced, is_refused
from penstock.brokers.records import MAX_PENDING_RECORDS, MAX_RECORD_BYTES, append
from penstock.brokers.topics import Topic
from penstock.dataflow.errors import DataflowError, PenstockError
from penstock.dataflow.kafka import Kafka
from penstock.engines.spark.sinks.topic_output import TopicOutput
from penstock.engines.spark.storage.column_names import quoted
from penstock.engines.spark.storage.row_files import RowFile, write_dataframe

_BATCH_TIMEOUT_S = 600.0
_CONFIRM_TIMEOUT_S = 60.0  # for all records of a batch
_CALL_TIMEOUT_S = 20.0  # for one call; a longer one is repeated with another client
_STOPPING_CALL_TIMEOUT_S = 5.0  # for one call while the query is being stopped
_STALE_REQUEST_S = 60.0  # requests of an abandoned client may still take effect for so long


class KafkaSink:
    """Writes batches in the order of its calls. `name` is unique in the cluster and constant over restarts.

    The sink waits for a broker that does not respond, unless `is_stopping`, because Spark waits for the running batch
    when a query is stopped. `output` refuses a topic that another run has taken over.
    """

    _latest: ClassVar[dict[str, KafkaSink]] = {}  # sinks of this process by name
    _abandoned_s: ClassVar[dict[str, float]] = {}  # when a client of that name was last abandoned

    def __init__(
        self,
        sink: Kafka,
        name: str,
        folder: Path,
        is_stopping: Callable[[], bool],
        output: TopicOutput | None = None,
    ) -> None:
        self._sink = sink
        self._name = name
        self._folder = folder
        self._is_stopping = is_stopping
        self._output = output
        self._cluster = KafkaCluster(bootstrap_servers=sink.bootstrap_servers, options=sink.options)
        self._topic = Topic(self._cluster, sink.topic)
        self._producer: Any = None
        self._disturbed = False  # whether a broker was lost since the producer connected
        self._opened = False
        self._group: Any = None
        self._last: str | None = None  # the key of the last batch in the topic
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, df: DataFrame, key: str) -> int:
        files = write_dataframe(df.select(*record_columns(df, self._sink)), self._folder)
        try:
            self._publish(files, key)
        finally:
            for file in files:
                Path(file.path).unlink(missing_ok=True)
        return sum(file.rows for file in files)

    def _publish(self, files: list[RowFile], key: str) -> None:
        """Repeat the transaction until the batch is in the topic once. A failed transaction leaves nothing."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _BATCH_TIMEOUT_S
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
                if is_fenced(cause):
                    # A restarted broker also answers earlier requests, and the last of them fences the others.
                    with contextlib.suppress(KafkaException):
                        self._check_owned()
                    if now_s - self._abandoned_s.get(self._name, float("-inf")) > _STALE_REQUEST_S:
                        raise PenstockError(
                            f"another query writes to topic '{self._sink.topic}' under the same name"
                        ) from None
                else:
                    self._abandoned_s[self._name] = now_s
                self._producer = None  # a new one aborts the open transaction of the old one
                if is_refused(cause) or now_s > deadline or self._is_stopping():
                    raise PenstockError(
                        f"topic '{self._sink.topic}' at '{self._cluster.bootstrap_servers}' cannot be written: "
                        f"{cause.str()}"
                    ) from None
                self._wait()

    def _renew(self) -> None:
        """Replace a producer that has lost its broker, because it may never find its coordinator again."""
        if self._producer is not None:
            self._producer.poll(0)
            if self._disturbed:
                self._producer = None
        if self._producer is None:
            self._open()

    def _call(self, call: Callable[..., Result], *arguments: Any) -> Result:
        return call_with_timeout(
            lambda: _STOPPING_CALL_TIMEOUT_S if self._is_stopping() else _CALL_TIMEOUT_S, call, *arguments
        )

    def _lost_broker(self, error: Any) -> None:
        self._disturbed = True

    def _wait(self) -> None:
        """Wait before the next attempt. Raises PenstockError if the topic does not exist any more."""
        while True:
            time.sleep(0.5)
            self._topic.require_exists(timeout_s=2.0)
            if not self._topic.missing or self._is_stopping():
                return

    def _open(self) -> None:
        from confluent_kafka import Consumer, KafkaException, Producer

        if self._latest.setdefault(self._name, self) is not self:
            if self._opened:  # a stopped query runs on for a moment, and must not fence its successor
                raise PenstockError(f"another query writes to topic '{self._sink.topic}' under the same name")
            self._latest[self._name] = self
        self._opened = True
        producer = self._cluster.client(
            Producer,
            **{
                "transactional.id": self._name,
                "transaction.timeout.ms": 300_000,
                "message.max.bytes": MAX_RECORD_BYTES,
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 2 * MAX_PENDING_RECORDS,
                "delivery.report.only.error": True,
                "reconnect.backoff.max.ms": 1000,
                "error_cb": self._lost_broker,
            },
        )
        self._call(producer.init_transactions, 10.0)
        self._check_owned()
        group = {"group.id": self._name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._group = self._cluster.client(Consumer, **group)
        (last,) = self._call(self._group.committed, [self._batch_offset()], 10.0)
        if last.error is not None:  # without this check the sink would seem to have written nothing
            raise KafkaException(last.error)
        self._last = last.metadata
        self._producer = producer
        producer.poll(0)
        self._disturbed = False  # it is connected, although other bootstrap servers may be down

    def _check_owned(self) -> None:
        if self._output is not None:
            self._output.check_owned()

    def _transaction(self, files: list[RowFile], key: str) -> None:
        from confluent_kafka import KafkaError, KafkaException

        producer, undelivered = self._producer, list[Any]()
        producer.begin_transaction()
        for file in files:
            with pa.memory_map(file.path) as source, pa.ipc.open_file(source) as rows:
                for number in range(rows.num_record_batches):
                    batch = rows.get_batch(number)
                    keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
                    contents = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
                    append(producer, self._sink.topic, contents, undelivered, on_wait=self._check_stopping)
        deadline = time.monotonic() + _CONFIRM_TIMEOUT_S
        # A commit alone would wait for records after a refused one without its reason, and for an unavailable broker
        # while the run stops.
        while not undelivered and (left := producer.flush(0.2)):
            self._check_stopping()
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left:,} records are not confirmed"))
        if undelivered:
            raise KafkaException(undelivered[0])
        if self._disturbed:
            raise KafkaException(
                KafkaError(KafkaError._TRANSPORT, "the connection to the broker was lost during a batch")
            )
        group = self._group.consumer_group_metadata()
        self._call(producer.send_offsets_to_transaction, [self._batch_offset(key)], group, _CALL_TIMEOUT_S)
        self._call(producer.commit_transaction, _CALL_TIMEOUT_S)  # flushes first, and fails if a record failed

    def _check_stopping(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if self._is_stopping():
            left = f"{len(self._producer):,} records are not confirmed"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, left))

    def _batch_offset(self, key: str | None = None) -> Any:
        from confluent_kafka import TopicPartition

        if key is None:
            return TopicPartition(self._sink.topic, 0)
        return TopicPartition(self._sink.topic, 0, int(key.rpartition(".")[2]), metadata=key)


def _follows(key: str, last: str | None) -> bool:
    """Return whether a batch is not in the topic yet. Spark never repeats a batch before the last one.

    >>> _follows("a.00000002", "a.00000001"), _follows("a.00000001", "a.00000001"), _follows("b.00000000", "a.00000001")
    (True, False, True)
    """
    checkpoint, _, number = key.rpartition(".")
    before, _, latest = (last or "").rpartition(".")
    return checkpoint != before or int(number) > int(latest)


def record_columns(df: DataFrame, sink: Kafka) -> list[Column]:
    """Return the columns `key` and `value` of the records. Raises DataflowError if the columns do not fit the sink."""
    if sink.key is not None and sink.key not in df.columns:
        raise DataflowError(
            f"the sink to topic '{sink.topic}' has key='{sink.key}', which is not one of its columns "
            f"{', '.join(df.columns)}"
        )
    key = F.col(quoted(sink.key)).cast("string").cast("binary") if sink.key is not None else None
    if sink.format == "json":
        value = F.to_json(F.struct(*map(quoted, df.columns))).cast("binary")
    elif sink.format == "text":
        if len(df.columns) != 1:
            raise DataflowError(
                f"the sink to topic '{sink.topic}' writes text, which needs exactly one column, but receives "
                f"{', '.join(df.columns)}; use format='json'"
            )
        value = F.col(quoted(df.columns[0])).cast("string").cast("binary")
    else:
        if "value" not in df.columns or not isinstance(df.schema["value"].dataType, BinaryType):
            raise DataflowError(
                f"the sink to topic '{sink.topic}' writes bytes; it needs a column 'value' of type binary"
            )
        value = F.col("value")
        key = key if key is not None or "key" not in df.columns else F.col("key").cast("binary")
    return [(F.lit(None).cast("binary") if key is None else key).alias("key"), value.alias("value")]
