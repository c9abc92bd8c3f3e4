"""Limits for calls of the client that keep to none of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

_LOOK_S = 0.1
Result = TypeVar("Result")


def within(limit_s: Callable[[], float], call: Callable[..., Result], *given: Any) -> Result:
    """What the call returns or raises; KafkaException where it is not back after so long, which may change meanwhile.

    While a coordinator is away the client's own limit does not hold: a call that was made too early never comes back
    (librdkafka's issues 5456 and 5511). It is left to itself, and so must the client be that it was made on.
    """
    from confluent_kafka import KafkaError, KafkaException

    outcome: list[tuple[Result | None, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(*given), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="kafka-call", daemon=True)
    began = time.monotonic()
    thread.start()
    while not outcome:
        if time.monotonic() - began > limit_s():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not answer"))
        thread.join(_LOOK_S)
    result, error = outcome.pop()
    if error is not None:
        try:
            raise error
        finally:
            del error  # an error and what refers to it would keep the client, which goes on trying by itself
    return result  # type: ignore[return-value]
