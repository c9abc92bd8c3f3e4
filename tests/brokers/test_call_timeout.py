"""A call that never returns does not block its caller."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.brokers.call_timeout import call_with_timeout


def test_the_result_of_a_call_is_returned() -> None:
    def fails() -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "no transaction"))

    assert call_with_timeout(lambda: 60.0, divmod, 7, 2) == (3, 1)
    with pytest.raises(KafkaException, match="no transaction"):
        call_with_timeout(lambda: 60.0, fails)


def test_a_call_that_does_not_return_times_out_and_sooner_while_stopping() -> None:
    stopping, never = threading.Event(), threading.Event()
    began = time.monotonic()
    threading.Timer(0.2, stopping.set).start()
    with pytest.raises(KafkaException, match="does not answer"):
        call_with_timeout(lambda: 0.0 if stopping.is_set() else 3600.0, never.wait)
    assert time.monotonic() - began >= 0.2
    never.set()


def test_a_client_whose_call_failed_is_released_at_once() -> None:
    """It would retry, and fence off its successor when a retry succeeds."""

    class Client:
        def ask(self) -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no coordinator"))

    gc.disable()
    try:
        client = Client()
        kept = weakref.ref(client)
        with contextlib.suppress(KafkaException):
            call_with_timeout(lambda: 60.0, client.ask)
        del client
        deadline = time.monotonic() + 300
        while kept() is not None and time.monotonic() < deadline:  # its thread may still be running
            time.sleep(0.01)
        assert kept() is None
    finally:
        gc.enable()
