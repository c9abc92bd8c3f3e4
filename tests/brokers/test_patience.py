"""A call that never comes back does not hold whoever made it."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.brokers.patience import within


def test_what_comes_back_is_handed_on() -> None:
    def fails() -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "no transaction"))

    assert within(lambda: 60.0, divmod, 7, 2) == (3, 1)
    with pytest.raises(KafkaException, match="no transaction"):
        within(lambda: 60.0, fails)


def test_what_does_not_come_back_is_given_up_and_sooner_while_stopping() -> None:
    stopping, never = threading.Event(), threading.Event()
    threading.Timer(0.2, stopping.set).start()
    began = time.monotonic()
    with pytest.raises(KafkaException, match="does not answer"):
        within(lambda: 0.0 if stopping.is_set() else 3600.0, never.wait)
    assert time.monotonic() - began >= 0.2
    never.set()
