"""The contract suite of callers: threads and coroutines end calls, give them up and report errors in the same way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.engines.spark.calls.call_threads import CallThreads
from penstock.engines.spark.calls.event_loop import Coroutines, EventLoop
from penstock.engines.spark.calls.outcome import Caller

Make = Callable[[Callable[[dict[str, Any]], Any]], Caller]


@pytest.fixture(params=["threads", "coroutines"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Return a function that creates a caller of a function. The function may return a threading.Event to wait for."""
    with ExitStack() as at_end:

        def threads(function: Callable[[dict[str, Any]], Any]) -> Caller:
            def call(row: dict[str, Any]) -> Any:
                result = function(row)
                if isinstance(result, threading.Event):
                    assert result.wait(60)
                    return row
                return result

            caller = CallThreads(call)
            at_end.callback(caller.close)
            return caller

        def coroutines(function: Callable[[dict[str, Any]], Any]) -> Caller:
            async def call(row: dict[str, Any]) -> Any:
                result = function(row)
                if isinstance(result, threading.Event):
                    while not result.is_set():
                        await asyncio.sleep(0.005)
                    return row
                return result

            events = EventLoop()
            at_end.callback(events.close)
            caller = Coroutines(call, events)
            at_end.callback(caller.close)
            return caller

        yield threads if request.param == "threads" else coroutines


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "the condition was not met"
        time.sleep(0.005)


def test_each_call_has_one_outcome_with_its_number(make: Make) -> None:
    caller = make(lambda row: {"n": row["n"] ** 2})
    for number in range(20):
        caller.start(number, {"n": number})
    outcomes = [caller.outcomes.get(timeout=60) for _ in range(20)]
    assert {outcome.number: outcome.result for outcome in outcomes} == {n: {"n": n * n} for n in range(20)}
    assert all(outcome.error is None and outcome.seconds >= 0 for outcome in outcomes)
    assert caller.outcomes.empty() and caller.abandoned == 0


def test_no_row_and_several_rows(make: Make) -> None:
    caller = make(lambda row: ({"n": n} for n in range(2)) if row["n"] else None)
    for number, expected in enumerate([None, [{"n": 0}, {"n": 1}]]):
        caller.start(number, {"n": number})
        assert caller.outcomes.get(timeout=60).result == expected


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_an_exception_is_an_outcome_and_later_calls_work(make: Make, error: BaseException) -> None:
    def fail(row: dict[str, Any]) -> Any:
        if row["n"] == 0:
            raise error
        return row

    caller = make(fail)
    caller.start(0, {"n": 0})
    assert caller.outcomes.get(timeout=60).error is error
    caller.start(1, {"n": 1})
    assert caller.outcomes.get(timeout=60).result == {"n": 1}


def test_all_calls_are_in_progress_at_the_same_time(make: Make) -> None:
    begun: set[int] = set()
    all_begun = threading.Event()

    def meet(row: dict[str, Any]) -> threading.Event:
        begun.add(row["n"])
        if len(begun) == 8:
            all_begun.set()
        return all_begun

    caller = make(meet)
    for number in range(8):
        caller.start(number, {"n": number})
    assert sorted(caller.outcomes.get(timeout=60).number for _ in range(8)) == list(range(8))


def test_an_abandoned_call_has_no_outcome_and_does_not_delay_others(make: Make) -> None:
    begun, release = threading.Event(), threading.Event()

    def stuck(row: dict[str, Any]) -> Any:
        if row["n"] == 0:
            begun.set()
            return release
        return row

    caller = make(stuck)
    try:
        caller.start(0, {"n": 0})
        assert begun.wait(60)
        caller.abandon(0)
        caller.start(1, {"n": 1})
        assert caller.outcomes.get(timeout=60).number == 1
    finally:
        release.set()
    wait_for(lambda: caller.abandoned == 0)
    assert caller.outcomes.empty()


def test_a_call_that_has_ended_cannot_be_abandoned(make: Make) -> None:
    caller = make(lambda row: row)
    caller.start(0, {})
    assert caller.outcomes.get(timeout=60).number == 0
    assert caller.abandon(0) is None and caller.abandoned == 0


def test_close_abandons_all_calls(make: Make) -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    def stuck(row: dict[str, Any]) -> threading.Event:
        begun.release()
        return release

    caller = make(stuck)
    try:
        for number in range(3):
            caller.start(number, {})
        for _ in range(3):
            assert begun.acquire(timeout=60)
        caller.close()
    finally:
        release.set()
    wait_for(lambda: caller.abandoned == 0)
    assert caller.outcomes.empty()
