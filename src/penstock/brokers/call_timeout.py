"""A time limit for calls of the Kafka client that have none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

_CHECK_EVERY_S = 0.1
Result = TypeVar("Result")


def call_with_timeout(timeout_s: Callable[[], float], call: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of the call, or raise KafkaException if it does not return in time.

    While a coordinator is unavailable, the client ignores its own time limit: a call that was made too early never
    returns (librdkafka issues 5456 and 5511). The thread of such a call is abandoned, and the caller must abandon the
    client too.

    Args:
        timeout_s: Function that returns the current limit. It may change during the call.
        call: Function to call.
        arguments: Arguments of the function.

    Raises:
        KafkaException: The call did not return in time. Exceptions of the call itself are raised unchanged.
    """
    from confluent_kafka import KafkaError, KafkaException

    outcome: list[tuple[Result | None, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="kafka-call", daemon=True)
    started_s = time.monotonic()
    thread.start()
    while not outcome:
        if time.monotonic() - started_s > timeout_s():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not answer"))
        thread.join(_CHECK_EVERY_S)
    result, error = outcome.pop()
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback refers to the client, which would otherwise stay alive and go on retrying
    return result  # type: ignore[return-value]
