"""The wait for executors: it ends when all are there, when none arrives any more, or when the start is cancelled."""

from __future__ import annotations

import math
import threading

import pytest

from penstock.engines.spark.executors import ExecutorsError
from penstock.engines.spark.executors.spark_negotiator import await_zero


def test_the_wait_ends_with_the_last_executor_or_without_progress() -> None:
    missing = iter([3, 2, 2, 0, 7])
    await_zero(lambda: next(missing), math.inf, threading.Event())
    assert next(missing) == 7
    await_zero(lambda: 1, 0.0, threading.Event())


def test_a_cancelled_start_does_not_wait() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ExecutorsError, match="cancelled"):
        await_zero(lambda: 1, math.inf, cancelled)
