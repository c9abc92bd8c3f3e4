"""From Kafka records to rows: many at once where all are good, one by one where one is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import producer
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.kafka import Kafka
from penstock.engines.spark.sources.json_rows import read_moment, row_type

Record = Any  # confluent_kafka.Message
# Brackets by the thousand are a record that somebody sent, too.
_BAD = (pa.ArrowException, UnicodeDecodeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError)


class Decoder:
    """A record that is not of the schema is a poison record: it ends the run, or it goes to the dead letters.

    A dead letter keeps key, value and headers, and says where it came from. After a failure it may be there twice,
    under the same key in the header `penstock.from`.
    """

    def __init__(self, declared: Kafka, cluster: KafkaCluster, schema: pa.Schema) -> None:
        self._declared = declared
        self._cluster = cluster
        self._schema = schema
        self._json = msgspec.json.Decoder(row_type(schema), dec_hook=read_moment) if declared.format == "json" else None
        self._letters: Any = None  # the producer of dead letters, once there is one
        self._lost: list[Any] = []  # dead letters that could not be delivered

    def batch(self, records: list[Record]) -> pa.RecordBatch:
        if self._declared.format == "bytes":
            columns = [[record.key() for record in records], [record.value() for record in records]]
            return pa.RecordBatch.from_arrays(
                [pa.array(column, pa.binary()) for column in columns], schema=self._schema
            )
        try:
            return self._decoded(records)
        except _BAD:
            return self._one_by_one(records)

    def done(self) -> None:
        """All dead letters are safe."""
        if self._letters is not None:
            self._letters.flush()
            if self._lost:
                producer.cache_clear()  # a client that has failed for good stays so
                raise PenstockError(
                    f"{len(self._lost)} dead letters cannot be written to topic '{self._declared.dead_letter}': "
                    f"{self._lost[0].str()}; mend that and resume the run"
                )

    def _decoded(self, records: list[Record]) -> pa.RecordBatch:
        values = [record.value() for record in records]
        if self._json is None:
            return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()).cast(pa.string())], schema=self._schema)
        if None in values:
            raise ValueError("it is a tombstone: it has a key and no value")
        return pa.RecordBatch.from_pylist([self._json.decode(value) for value in values], schema=self._schema)

    def _one_by_one(self, records: list[Record]) -> pa.RecordBatch:
        good = []
        for record in records:
            try:
                good.append(self._decoded([record]))
            except _BAD as error:
                self._poison(record, error)
        if not good:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return pa.Table.from_batches(good).combine_chunks().to_batches()[0]

    def _poison(self, record: Record, error: Exception) -> None:
        from confluent_kafka import KafkaException

        place = f"{record.topic()}/{record.partition()}/{record.offset()}"
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if self._declared.dead_letter is None:
            raise PenstockError(
                f"record {record.offset()} of partition {record.partition()} of topic '{record.topic()}' does "
                f"not read as {self._declared.format} with columns {', '.join(self._schema.names)} ({why}); mend "
                "whoever writes it, or give the source dead_letter='a topic' and resume the run"
            )
        if self._declared.silent:
            return
        letters = self._letters = producer(self._cluster)
        headers = [*(record.headers() or ()), ("penstock.from", place.encode()), ("penstock.why", why.encode())]
        while True:
            try:
                letters.produce(
                    self._declared.dead_letter,
                    record.value(),
                    record.key(),
                    headers=headers,
                    on_delivery=lambda failed, _: self._lost.append(failed) if failed is not None else None,
                )
                break
            except BufferError:  # so many are on their way that there is no room for more
                letters.poll(0.1)
            except KafkaException as refused:  # of a client that knows that it is in vain
                self._lost.append(refused.args[0])
                break
        letters.poll(0)
