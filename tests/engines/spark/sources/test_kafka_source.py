"""The parts of a Kafka source that need no broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.types import StringType, StructType

import penstock
from penstock.brokers.topics import Topic
from penstock.engines.spark.sources.kafka import KafkaSource


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_broker_that_stops_answering_at_the_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: str
) -> None:
    def silent(topic: Topic, *_: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not answer"))

    monkeypatch.setattr(Topic, "required", lambda topic, what: (0,))
    monkeypatch.setattr(Topic, "_offsets", silent)
    rows = StructType().add("value", StringType())
    source = KafkaSource("lines", tmp_path, rows, penstock.kafka("t", bootstrap_servers="127.0.0.1:1", start=start))
    with pytest.raises(penstock.PenstockError, match=r"source 'lines': no Kafka broker answers at '127\.0\.0\.1:1'"):
        source.first()
