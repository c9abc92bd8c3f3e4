"""Decoding of records to rows, and the handling of poison records."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

import penstock
from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.sources import decoding
from penstock.engines.spark.sources.decoding import RecordDecoder
from penstock.engines.spark.sources.json_rows import row_type

TEXT = pa.schema([("value", pa.string())])
NUMBERS = pa.schema([("n", pa.int64())])


@dataclass
class Record:
    content: bytes | None
    place: int = 0

    def value(self) -> bytes | None:
        return self.content

    def key(self) -> bytes:
        return b"k"

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [("trace", b"7")]

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.place


class StoringProducer:
    """A producer that stores its messages."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def produce(self, topic: str, value: Any, key: Any, headers: Any, on_delivery: Any) -> None:
        self.sent.append((value, headers))

    def poll(self, timeout_s: float) -> None: ...

    def flush(self) -> None: ...


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> StoringProducer:
    letters = StoringProducer()
    monkeypatch.setattr(decoding, "producer", lambda cluster: letters)
    return letters


def decoder(schema: pa.Schema, silent: bool = False, **how: Any) -> RecordDecoder:
    declared = penstock.kafka(
        "t", bootstrap_servers="localhost:1", schema=None if schema is TEXT else "n bigint", **how
    )
    if silent:
        flow = penstock.Dataflow("f")
        flow.source("rows", declared).sink("out", penstock.noop())
        declared = flow.without_output()["rows"].source  # type: ignore[assignment]
    return RecordDecoder(declared, KafkaCluster(bootstrap_servers=declared.bootstrap_servers), schema)


BAD = [b'{"n":1}{"n":2}', b"", b"[1]", b"1", b'{"n":"7"}', b'{"n":1.5}', b'{"n":99999999999999999999}', None]
DEEP = pytest.param(b'{"more":' + b"[" * 100_000, id="deep")


@pytest.mark.parametrize("bad", [*BAD, DEEP])
def test_a_poison_record_is_detected_in_any_batch(letters: StoringProducer, bad: bytes | None) -> None:
    good = b'{"n":3,"more":"x"}'
    for company in ([bad], [bad, b""], [good, bad], [good, bad, b"", good]):
        letters.sent.clear()
        rows = decoder(NUMBERS, format="json", dead_letter="dead").batch([Record(value) for value in company])
        assert rows.to_pylist() == [{"n": 3}] * company.count(good)
        assert [value for value, _ in letters.sent] == [value for value in company if value != good]


def test_a_tombstone_is_a_null_row_of_text_and_named_where_it_is_poison() -> None:
    rows = decoder(TEXT).batch([Record(b"a"), Record(None)])
    assert rows.to_pylist() == [{"value": "a"}, {"value": None}]
    with pytest.raises(
        penstock.PenstockError, match=r"record 7 of partition 0 of topic 't'.*the record is a tombstone"
    ):
        decoder(NUMBERS, format="json").batch([Record(None, place=7)])


@pytest.mark.parametrize(
    "bad", ["{}", '{"n": null}', '{"n": 1, "of": [null]}', '{"n": 1, "in": {}}', '{"n": 1, "by": {"a": null}}']
)
def test_a_null_where_there_may_be_none_is_poison(letters: StoringProducer, bad: str) -> None:
    n = pa.field("n", pa.int64(), nullable=False)
    schema = pa.schema([n, ("of", pa.list_(n)), ("in", pa.struct([n])), ("by", pa.map_(pa.string(), n))])
    read = decoder(schema, format="json", dead_letter="dead")
    good = {"n": 0, "of": [1], "in": {"n": 2}, "by": [("a", 3)]}
    text = '{"n": 0, "of": [1], "in": {"n": 2}, "by": {"a": 3}}'
    rows = read.batch([Record(text.encode()), Record(bad.encode()), Record(b'{"n": 4}')])
    assert rows.to_pylist() == [good, {"n": 4, "of": None, "in": None, "by": None}]
    assert [value for value, _ in letters.sent] == [bad.encode()]


TIMES = ["2026-01-31", "2026-01-31 10:05", "2026-01-31T10:05:06Z", "2026-01-31T12:05:06.500+02:00"]


def test_times_are_read_as_people_write_them() -> None:
    moments = pa.schema([("at", pa.timestamp("us", "UTC"))])
    declared = penstock.kafka("t", bootstrap_servers="localhost:1", schema="at timestamp", format="json")
    rows = RecordDecoder(declared, KafkaCluster(bootstrap_servers="localhost:1"), moments).batch(
        [Record(f'{{"at": "{time}"}}'.encode()) for time in TIMES]
    )
    assert [str(row["at"])[:22] for row in rows.to_pylist()] == [
        "2026-01-31 00:00:00+00",
        "2026-01-31 10:05:00+00",
        "2026-01-31 10:05:06+00",
        "2026-01-31 10:05:06.50",
    ]


def test_a_dead_letter_keeps_its_headers_and_names_its_origin(letters: StoringProducer) -> None:
    decoder(NUMBERS, format="json", dead_letter="dead").batch([Record(b"?", place=5)])
    ((value, headers),) = letters.sent
    assert value == b"?" and dict(headers) | {"penstock.why": b""} == {
        "trace": b"7",
        "penstock.from": b"t/0/5",
        "penstock.why": b"",
    }


def test_refused_dead_letters_are_reported_and_the_client_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real producer also raises, without a callback, for a topic that was deleted some time ago."""

    class Refusing(StoringProducer):
        def produce(self, *_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC, "no such topic"))

    clients = [better := StoringProducer(), Refusing()]
    monkeypatch.setattr(decoding, "producer", functools.cache(lambda cluster: clients.pop()))
    for refused in (True, False):
        poisoned = decoder(NUMBERS, format="json", dead_letter="dead")
        poisoned.batch([Record(b"?")])
        if refused:
            with pytest.raises(
                penstock.PenstockError, match="1 dead letters cannot be written to topic 'dead': no such"
            ):
                poisoned.close()
        else:
            poisoned.close()
    assert [value for value, _ in better.sent] == [b"?"]


def test_a_measurement_writes_no_dead_letters(letters: StoringProducer) -> None:
    silent = decoder(NUMBERS, silent=True, format="json", dead_letter="dead")
    assert silent.batch([Record(b"?"), Record(b'{"n":1}')]).to_pylist() == [{"n": 1}]
    silent.close()
    assert letters.sent == []


@pytest.mark.parametrize("odd", [pa.duration("us"), pa.map_(pa.date32(), pa.int64()), pa.list_(pa.duration("us"))])
def test_a_type_that_is_not_read_from_json_is_refused(odd: pa.DataType) -> None:
    with pytest.raises(penstock.DataflowError, match=r"column 'a\.b' has the type .*; declare it as a string"):
        row_type(pa.schema([("a", pa.struct([("b", odd)]))]))
