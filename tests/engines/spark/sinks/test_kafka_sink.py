"""A sink in Kafka: permanent errors are not retried, and records wait for space in the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

import penstock
from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.sinks.kafka import KafkaSink
from penstock.engines.spark.storage import row_files
from penstock.engines.spark.storage.row_files import RowFile


@pytest.mark.parametrize(
    "code", [KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.INVALID_TRANSACTION_TIMEOUT]
)
def test_a_missing_right_is_not_retried_endlessly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int) -> None:
    tries: list[int] = []

    def refused(sink: KafkaSink) -> None:
        tries.append(1)
        raise KafkaException(KafkaError(code, "no right"))

    monkeypatch.setattr(KafkaSink, "_open", refused)
    sink = KafkaSink(
        penstock.kafka("out", bootstrap_servers="127.0.0.1:1"), "name", tmp_path, is_stopping=lambda: len(tries) > 1
    )
    with pytest.raises(penstock.PenstockError, match="topic 'out' at '127.0.0.1:1' cannot be written: no right"):
        sink._publish([], "q.00000000")
    assert len(tries) == 1


class SmallProducer:
    """A producer that queues 3 records until it is polled. Its broker accepts values of at most `largest` bytes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._waiting: list[Any] = []
        self._failed = False
        self.taken: list[Any] = []
        self.committed: list[Any] = []
        self.away = False  # then records wait, and a commit waits too

    def __len__(self) -> int:
        return len(self._waiting)

    def begin_transaction(self) -> None: ...

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], on_delivery: Any = None) -> int:
        room = 3 - len(self._waiting)
        for message in messages[:room]:
            self._waiting.append((message["key"], message["value"], on_delivery))
        for message in messages[room:]:
            message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        return min(room, len(messages))

    def poll(self, timeout_s: float) -> None:
        if self.away:
            return
        for key, value, on_delivery in self._waiting:
            if len(value) <= self._largest:
                self.taken.append((key, value))
                continue
            self._failed = True
            if on_delivery is not None:
                on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"), None)
        self._waiting.clear()

    def flush(self, timeout_s: float) -> int:
        self.poll(timeout_s)
        return len(self)

    def send_offsets_to_transaction(self, *_: Any) -> None: ...

    def commit_transaction(self, timeout_s: float) -> None:
        assert not self.away, f"the call did not return within {timeout_s} s"
        self.poll(0)
        if self._failed:
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "1 message(s) failed delivery"))
        self.committed = self.taken


class Group:
    def consumer_group_metadata(self) -> None: ...


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[SmallProducer, list[bytes]], None]:
    def publish(producer: SmallProducer, values: list[bytes]) -> None:
        tries: list[int] = []

        def opened(sink: KafkaSink) -> None:
            tries.append(1)
            sink._producer, sink._group = producer, Group()

        monkeypatch.setattr(KafkaSink, "_open", opened)
        monkeypatch.setattr(KafkaSink, "_wait", lambda sink: None)
        rows = pa.RecordBatch.from_pydict({"key": [b"k"] * len(values), "value": values})
        file: RowFile = row_files.write_row_file(tmp_path / "rows.arrow", [rows], rows.schema)
        stopping = lambda: len(tries) > 1 or producer.away  # noqa: E731
        sink = KafkaSink(penstock.kafka("out", bootstrap_servers="127.0.0.1:1"), "name", tmp_path, stopping)
        sink._publish([file], "q.00000000")

    return publish


def test_a_batch_larger_than_the_queue_of_the_client_is_written_completely_and_in_order(
    publish: Callable[[SmallProducer, list[bytes]], None],
) -> None:
    producer, values = SmallProducer(largest=10), [b"%d" % n for n in range(20)]
    publish(producer, values)
    assert producer.committed == [(b"k", value) for value in values]


def test_a_record_that_the_broker_refuses_is_reported_at_once(
    publish: Callable[[SmallProducer, list[bytes]], None],
) -> None:
    producer = SmallProducer(largest=10)
    with pytest.raises(penstock.PenstockError, match="topic 'out' at .* cannot be written: too large"):
        publish(producer, [b"fits", b"does not fit by far", b"fits"])
    assert producer.committed == []


@pytest.mark.parametrize(("records", "handed_over"), [(2, 2), (7, 3)])  # its queue holds 3
def test_a_stopping_run_does_not_wait_for_a_broker(
    publish: Callable[[SmallProducer, list[bytes]], None], records: int, handed_over: int
) -> None:
    producer = SmallProducer(largest=10)
    producer.away = True
    with pytest.raises(penstock.PenstockError, match=f"cannot be written: {handed_over} records are not confirmed"):
        publish(producer, [b"%d" % n for n in range(records)])
    assert producer.committed == []


class Fenced(SmallProducer):
    def commit_transaction(self, timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance"))


@pytest.mark.parametrize("given_up", [True, False])
def test_a_client_that_is_fenced_off_by_an_abandoned_one_tries_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given_up: bool
) -> None:
    """A request to an unavailable broker takes effect when it returns; otherwise another client was active."""
    clients: list[SmallProducer | None] = [
        *([None] if given_up else []),
        Fenced(largest=10),
        written := SmallProducer(largest=10),
    ]

    def opened(sink: KafkaSink) -> None:
        client = clients.pop(0)
        if client is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no coordinator"))
        sink._producer, sink._group = client, Group()

    monkeypatch.setattr(KafkaSink, "_open", opened)
    monkeypatch.setattr(KafkaSink, "_wait", lambda sink: None)
    rows = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"1"]})
    file: RowFile = row_files.write_row_file(tmp_path / "rows.arrow", [rows], rows.schema)
    sink = KafkaSink(
        penstock.kafka("out", bootstrap_servers="127.0.0.1:1"),
        f"shut out {given_up}",
        tmp_path,
        is_stopping=lambda: False,
    )
    if given_up:
        sink._publish([file], "q.00000000")
        assert written.committed == [(b"k", b"1")]
    else:
        with pytest.raises(penstock.PenstockError, match="another query writes to topic 'out' under the same name"):
            sink._publish([file], "q.00000000")


class OneServerDown(SmallProducer):
    """One of the configured servers is down: the client reports it on the first request and continues."""

    def __init__(self, error_cb: Callable[[KafkaError], None], **_: Any) -> None:
        super().__init__(largest=10)
        self._tell: Callable[[KafkaError], None] | None = error_cb

    def init_transactions(self, timeout_s: float) -> None: ...

    def poll(self, timeout_s: float) -> None:
        super().poll(timeout_s)
        if self._tell is not None:
            self._tell(KafkaError(KafkaError._TRANSPORT, "127.0.0.1:1/bootstrap: Connection refused"))
            self._tell = None


class NothingWritten(Group):
    def committed(self, parts: list[Any], timeout_s: float) -> list[Any]:
        return parts


def test_one_unavailable_server_does_not_disturb_a_sink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[OneServerDown] = []

    def client(cluster: KafkaCluster, kind: Any, **config: Any) -> Any:
        if kind is Consumer:
            return NothingWritten()
        made.append(OneServerDown(**config))
        return made[-1]

    monkeypatch.setattr(KafkaCluster, "client", client)
    monkeypatch.setattr(KafkaSink, "_wait", lambda sink: None)
    sink = KafkaSink(
        penstock.kafka("out", bootstrap_servers="127.0.0.1:1,127.0.0.1:2"),
        "one down",
        tmp_path,
        is_stopping=lambda: len(made) > 3,
    )
    for number in range(3):
        rows = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"%d" % number]})
        file: RowFile = row_files.write_row_file(tmp_path / "rows.arrow", [rows], rows.schema)
        sink._publish([file], f"q.{number:08d}")
    assert [producer.committed for producer in made] == [[(b"k", b"0"), (b"k", b"1"), (b"k", b"2")]]
