"""Temporary errors are waited for, permanent errors are raised at once, and a timeout contains the last error."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

import penstock
from penstock.brokers import records as reading
from penstock.brokers import topics as broker_topics
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.records import Span, records
from penstock.brokers.topics import Topic

NOWHERE = KafkaCluster(bootstrap_servers="127.0.0.1:1")


class Failed:
    """A message that contains an error."""

    def __init__(self, code: int, fatal: bool = False) -> None:
        self._error = KafkaError(code, "so it is", fatal)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return self._error


class Failing:
    """A consumer that returns one error and nothing else."""

    def __init__(self, message: Failed) -> None:
        self._message = message

    def assign(self, parts: Any) -> None: ...

    def unassign(self) -> None: ...

    def consume(self, count: int, timeout: float) -> list[Failed]:
        return [self._message]


def failing(monkeypatch: pytest.MonkeyPatch, code: int, fatal: bool = False) -> list[Any]:
    monkeypatch.setattr(reading, "_consumer", lambda cluster, topic: Failing(Failed(code, fatal)))
    return list(records(NOWHERE, "t", [Span(0, 0, 10)]))


@pytest.mark.parametrize(("code", "fatal"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, False), (KafkaError._STATE, True)])
def test_permanent_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch, code: int, fatal: bool) -> None:
    with pytest.raises(penstock.PenstockError, match="Topic 't' cannot be read: so it is"):
        failing(monkeypatch, code, fatal)


def test_a_timeout_contains_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SILENCE_TIMEOUT_S", 0.1)
    with pytest.raises(penstock.PenstockError, match="has returned records of topic 't' for 0.1 s: so it is"):
        failing(monkeypatch, KafkaError._TRANSPORT)


def test_a_missing_right_to_delete_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    topic, refused = Topic(NOWHERE, "t"), concurrent.futures.Future[Any]()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right")))
    for _ in range(2):
        refused.add_done_callback(topic._note_refusal)
    assert [record.getMessage() for record in caplog.records] == [
        "Topic 't' grows without limit, because its records cannot be deleted: no right; grant the permission to delete."
    ]


class FrozenAdmin:
    """The admin client of a broker that is stopped with SIGSTOP: its timeout ends without an error."""

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        answers = {part: concurrent.futures.Future[Any]() for part in asked}
        for answer in answers.values():
            answer.set_result(ListOffsetsResultInfo(OFFSET_INVALID, -1, -1))
        return answers

    def poll(self, timeout_s: float) -> None: ...


@pytest.mark.parametrize("of", [Topic.starts, Topic.ends])
def test_a_frozen_broker_gives_no_offsets(of: Callable[[Topic], Any]) -> None:
    topic = Topic(NOWHERE, "t")
    topic._client = FrozenAdmin()
    topic._partitions, topic._counted_at = (0, 1), time.monotonic()
    with pytest.raises(KafkaException, match="does not answer"):
        of(topic)


def test_the_reason_for_a_missing_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_topics, "_REQUEST_TIMEOUT_S", 3.0)
    with pytest.raises(
        penstock.PenstockError, match=r"No Kafka broker answers .*\(127\.0\.0\.1:1/.*Connection refused.*\)"
    ):
        Topic(NOWHERE, "t").required("source 'lines'")
    with pytest.raises(penstock.PenstockError, match="Topic 't' cannot be created at .*Connection refused"):
        Topic(NOWHERE, "t").create(1)


@pytest.mark.parametrize("code", [KafkaError._NOENT, KafkaError.UNKNOWN_LEADER_EPOCH])
def test_a_partition_without_a_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """This happens after a broker was stopped for longer than its controller waits."""

    class LeaderlessAdmin:
        def __init__(self) -> None:
            self.tries = 0

        def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Any]:
            self.tries += 1
            futures = {part: concurrent.futures.Future[Any]() for part in asked}
            for future in futures.values():
                if self.tries == 1:
                    future.set_exception(KafkaException(KafkaError(code, "no leader")))
                else:
                    future.set_result(SimpleNamespace(offset=7))
            return futures

    topic = Topic(NOWHERE, "t")
    admin = LeaderlessAdmin()
    monkeypatch.setattr(topic, "_admin", lambda: admin)
    monkeypatch.setattr(topic, "partitions", lambda timeout_s: (0, 1))
    assert topic.ends() == {0: 7, 1: 7} and admin.tries == 2
