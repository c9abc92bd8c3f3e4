"""Decodes Kafka records to rows: many records at once if all are valid, else one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import producer
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.kafka import Kafka
from penstock.engines.spark.sources.json_rows import decode_timestamp, row_type

Record = Any  # confluent_kafka.Message
# RecursionError: a record may consist of thousands of brackets.
_INVALID = (pa.ArrowException, UnicodeDecodeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError)


class RecordDecoder:
    """Decodes the records of a source. An invalid record fails the run, or is sent to the dead-letter topic.

    A dead letter keeps its key, value and headers. The header `penstock.from` holds its origin; after a failure a
    dead letter may be in the topic twice, with the same origin.
    """

    def __init__(self, declared: Kafka, cluster: KafkaCluster, schema: pa.Schema) -> None:
        self._declared = declared
        self._cluster = cluster
        self._schema = schema
        self._json = (
            msgspec.json.Decoder(row_type(schema), dec_hook=decode_timestamp) if declared.format == "json" else None
        )
        self._producer: Any = None  # producer of dead letters, created with the first one
        self._undelivered: list[Any] = []  # errors of dead letters

    def batch(self, records: list[Record]) -> pa.RecordBatch:
        if self._declared.format == "bytes":
            columns = [[record.key() for record in records], [record.value() for record in records]]
            return pa.RecordBatch.from_arrays(
                [pa.array(column, pa.binary()) for column in columns], schema=self._schema
            )
        try:
            return self._decoded(records)
        except _INVALID:
            return self._one_by_one(records)

    def close(self) -> None:
        """Wait until all dead letters are delivered. Raises PenstockError if one cannot be delivered."""
        if self._producer is not None:
            self._producer.flush()
            if self._undelivered:
                producer.cache_clear()  # a client does not recover from a permanent failure
                raise PenstockError(
                    f"{len(self._undelivered)} dead letters cannot be written to topic '{self._declared.dead_letter}': "
                    f"{self._undelivered[0].str()}; correct that and resume the run"
                )

    def _decoded(self, records: list[Record]) -> pa.RecordBatch:
        values = [record.value() for record in records]
        if self._json is None:
            return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()).cast(pa.string())], schema=self._schema)
        if None in values:
            raise ValueError("the record is a tombstone: it has a key and no value")
        return pa.RecordBatch.from_pylist([self._json.decode(value) for value in values], schema=self._schema)

    def _one_by_one(self, records: list[Record]) -> pa.RecordBatch:
        valid = []
        for record in records:
            try:
                valid.append(self._decoded([record]))
            except _INVALID as error:
                self._reject(record, error)
        if not valid:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return pa.Table.from_batches(valid).combine_chunks().to_batches()[0]

    def _reject(self, record: Record, error: Exception) -> None:
        from confluent_kafka import KafkaException

        origin = f"{record.topic()}/{record.partition()}/{record.offset()}"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if self._declared.dead_letter is None:
            raise PenstockError(
                f"record {record.offset()} of partition {record.partition()} of topic '{record.topic()}' cannot "
                f"be read as {self._declared.format} with columns {', '.join(self._schema.names)} ({reason}); correct "
                "its producer, or declare the source with dead_letter='<topic>' and resume the run"
            )
        if not self._declared.writes_dead_letters:
            return
        letters = self._producer = producer(self._cluster)
        headers = [*(record.headers() or ()), ("penstock.from", origin.encode()), ("penstock.why", reason.encode())]
        while True:
            try:
                letters.produce(
                    self._declared.dead_letter,
                    record.value(),
                    record.key(),
                    headers=headers,
                    on_delivery=lambda failed, _: self._undelivered.append(failed) if failed is not None else None,
                )
                break
            except BufferError:  # the client's queue is full
                letters.poll(0.1)
            except KafkaException as refused:  # the client knows that the topic cannot be written
                self._undelivered.append(refused.args[0])
                break
        letters.poll(0)
