"""A cut in Kafka: the content of records, and topics after a crash."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

import penstock
from penstock.brokers.cluster import KafkaCluster
from penstock.engines.spark.channels import KafkaChannel, topic_store
from penstock.engines.spark.channels.logged_channel import read_description
from penstock.engines.spark.channels.topic_store import TopicStore, _Writer
from penstock.engines.spark.run_directory.directory import RunDirectory
from penstock.engines.spark.storage.row_files import RowFile

NOWHERE = KafkaCluster(bootstrap_servers="127.0.0.1:1")


class StoringProducer:
    """A producer that stores messages and confirms them on flush."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._confirm: list[Callable[[], None]] = []

    def produce(self, topic: str, value: bytes, key: str, partition: int, on_delivery: Any) -> None:
        offset = len(self.values)
        self._confirm.append(lambda: on_delivery(None, SimpleNamespace(offset=lambda: offset)))
        self.values.append(value)

    def poll(self, timeout_s: float) -> None: ...

    def flush(self) -> None:
        for confirm in self._confirm:
            confirm()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> StoringProducer:
    kept = StoringProducer()
    monkeypatch.setattr(topic_store, "producer", lambda cluster: kept)
    return kept


def test_rows_of_uneven_size_go_into_records_of_about_one_size(kept: StoringProducer) -> None:
    words = ["x" * 600_000] * 4 + ["y"] * 10_000
    writer = _Writer(NOWHERE, "t", "q/0")
    writer.add(0, pa.RecordBatch.from_pydict({"word": words}))
    assert sum(rows for _, rows, _ in writer.close()) == len(words)
    read = [pa.ipc.open_stream(value).read_all() for value in kept.values]
    assert pa.concat_tables(read)["word"].to_pylist() == words
    assert max(len(value) for value in kept.values) < 1_200_000


def test_a_row_above_the_limit_is_reported(kept: StoringProducer) -> None:
    with pytest.raises(penstock.PenstockError, match="a row of .* bytes is larger than .*the channel 'embedded'"):
        _Writer(NOWHERE, "t", "q/0").add(0, pa.RecordBatch.from_pydict({"word": ["x" * (33 << 20)]}))


def test_a_deleted_topic_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(StoringProducer):
        def produce(self, *_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC, "no such topic"))

    monkeypatch.setattr(topic_store, "producer", functools.cache(lambda cluster: Refusing()))
    writer = _Writer(NOWHERE, "t", "q/0")
    writer.add(0, pa.RecordBatch.from_pydict({"word": ["x"]}))
    with pytest.raises(penstock.PenstockError, match="rows cannot be written to topic 't': no such topic"):
        writer.close()


def test_a_topic_is_recorded_before_it_is_created(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the driver is killed during the creation, the resumed driver finds the topic and deletes it."""
    created: list[str] = []
    folder = tmp_path / "channels" / "split_g1"

    def killed(store: TopicStore) -> None:
        created.append(store._topic)
        raise SystemExit

    monkeypatch.setattr(TopicStore, "create", killed)
    with pytest.raises(SystemExit):
        KafkaChannel.create(folder, "{}", cluster=NOWHERE)
    assert [read_description(folder).kafka.topic] == created
    dropped: list[str] = []
    monkeypatch.setattr(TopicStore, "delete_all", lambda store: dropped.append(store._topic))
    RunDirectory(tmp_path).delete_unused(None)
    assert dropped == created and not folder.exists()


def test_a_cut_is_never_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster may compact topics by default, and a repeated batch has the same keys."""
    asked: dict[str, str] = {}
    monkeypatch.setattr(topic_store.Topic, "create", lambda self, partitions, **config: asked.update(config))
    TopicStore(NOWHERE, "t", 4, ()).create()
    assert asked["cleanup.policy"] == "delete" and asked["retention.ms"] == asked["retention.bytes"] == "-1"


@pytest.mark.parametrize("replicas", [3, 4, 9])
def test_rows_of_a_key_are_read_by_one_replica(replicas: int) -> None:
    files = [RowFile(f"{group}:{offset}", 5, 0) for group in range(4) for offset in range(3)]
    shares = TopicStore(NOWHERE, "t", 4, ("word",)).split(files, replicas)
    assert len(shares) == replicas and sum(piece.rows for share in shares for piece in share) == 60
    for group in range(4):  # the rows of a key are in one group
        (share,) = [share for share in shares if any(piece.path.startswith(f"{group}:") for piece in share)]
        assert [piece.path for piece in share if piece.path.startswith(f"{group}:")] == [
            f"{group}:{n}" for n in range(3)
        ]
