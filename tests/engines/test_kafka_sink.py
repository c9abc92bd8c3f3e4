"""A sink in Kafka: what cannot be mended is not tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

import penstock as ps
from penstock.engines.spark.kafka_sink import KafkaSink


def test_without_the_right_it_does_not_try_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tries: list[int] = []

    def refused(sink: KafkaSink) -> None:
        tries.append(1)
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right"))

    monkeypatch.setattr(KafkaSink, "_open", refused)
    sink = KafkaSink(ps.kafka("out", "127.0.0.1:1"), "name", tmp_path, stopping=lambda: len(tries) > 1)
    with pytest.raises(ps.PenstockError, match="topic 'out' at '127.0.0.1:1' cannot be written: no right"):
        sink._publish([], "q.00000000")
    assert len(tries) == 1
