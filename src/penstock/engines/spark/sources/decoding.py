"""From Kafka records to rows: many at once where all are good, one by one where one is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json

from penstock.brokers.cluster import Cluster
from penstock.brokers.records import producer
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.kafka import Kafka

Record = Any  # confluent_kafka.Message
_BAD = (pa.ArrowException, UnicodeDecodeError, ValueError, msgspec.DecodeError)


class Decoder:
    """A record that is not of the schema is a poison record: it ends the run, or it goes to the dead letters.

    A dead letter keeps key and value and says where it came from. After a failure it may be there twice, under the
    same key in the header `penstock.from`.
    """

    def __init__(self, declared: Kafka, cluster: Cluster, schema: pa.Schema) -> None:
        self._declared = declared
        self._cluster = cluster
        self._schema = schema
        self._lost: list[Any] = []  # dead letters that could not be delivered

    def batch(self, records: list[Record]) -> pa.RecordBatch:
        if self._declared.format == "bytes":
            columns = [[record.key() for record in records], [record.value() for record in records]]
            return pa.RecordBatch.from_arrays(
                [pa.array(column, pa.binary()) for column in columns], schema=self._schema
            )
        values = [record.value() for record in records]
        try:
            return self._decoded(values)
        except _BAD:
            return self._one_by_one(records)

    def done(self) -> None:
        """All dead letters are safe."""
        if self._declared.dead_letter is not None:
            producer(self._cluster).flush()
            if self._lost:
                raise PenstockError(
                    f"{len(self._lost)} dead letters cannot be written to topic '{self._declared.dead_letter}': "
                    f"{self._lost[0].str()}"
                )

    def _decoded(self, values: list[bytes | None]) -> pa.RecordBatch:
        if None in values:
            raise ValueError("the record has no value")
        if self._declared.format == "text":
            return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()).cast(pa.string())], schema=self._schema)
        options = pa.json.ParseOptions(
            explicit_schema=self._schema, unexpected_field_behavior="ignore", newlines_in_values=True
        )
        lines = pa.BufferReader(b"\n".join(values))
        size = max(1 << 20, 2 * lines.size())
        table = pa.json.read_json(lines, pa.json.ReadOptions(block_size=size, use_threads=False), options)
        if table.num_rows != len(values):
            raise ValueError("a record is one JSON object")
        (batch,) = table.select(self._schema.names).combine_chunks().to_batches()
        return batch.cast(self._schema)

    def _one_by_one(self, records: list[Record]) -> pa.RecordBatch:
        good = []
        for record in records:
            try:
                if self._declared.format == "json" and not isinstance(msgspec.json.decode(record.value() or b""), dict):
                    raise ValueError("a record is one JSON object")
                good.append(self._decoded([record.value()]))
            except _BAD as error:
                self._poison(record, error)
        if not good:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return pa.Table.from_batches(good).combine_chunks().to_batches()[0]

    def _poison(self, record: Record, error: Exception) -> None:
        place = f"{record.topic()}/{record.partition()}/{record.offset()}"
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if self._declared.dead_letter is None:
            raise PenstockError(
                f"record {record.offset()} of partition {record.partition()} of topic '{record.topic()}' does "
                f"not read as {self._declared.format} with columns {', '.join(self._schema.names)} ({why}); mend "
                "whoever writes it, or give the source dead_letter='a topic' and resume the run"
            )
        letters = producer(self._cluster)
        while True:
            try:
                letters.produce(
                    self._declared.dead_letter,
                    record.value(),
                    record.key(),
                    headers={"penstock.from": place.encode(), "penstock.why": why.encode()},
                    on_delivery=lambda failed, _: self._lost.append(failed) if failed is not None else None,
                )
                break
            except BufferError:  # so many are on their way that there is no room for more
                letters.poll(0.1)
        letters.poll(0)
