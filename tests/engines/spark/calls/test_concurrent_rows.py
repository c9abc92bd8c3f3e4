"""Concurrent calls equal calls one after the other, for every order, with exceptions, timeouts and retries."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.dataflow.concurrent_calls import ConcurrentCalls, Order
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.function_errors import UserFunctionError
from penstock.dataflow.operators import RowFunction
from penstock.engines.spark.calls import clients, dispatcher, event_loop, row_calls, row_input
from penstock.engines.spark.calls.call_sums import CallSums
from penstock.engines.spark.calls.call_threads import THREAD_NAME, CallThreads
from penstock.engines.spark.calls.row_calls import over_concurrent_rows
from penstock.engines.spark.compile.row_functions import over_rows

RESULTS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
LETTER = pa.struct([("operator", pa.string()), ("row", pa.string()), ("error", pa.string()), ("attempts", pa.int32())])
WITH_LETTERS = pa.schema([*RESULTS, ("dead_letter", LETTER)])
ORDERS = [Order.ALL, Order.KEY, Order.NONE]


def batches(rows: int, keys: int = 3, per_batch: int = 7) -> list[pa.RecordBatch]:
    made = [{"k": n % keys, "n": n} for n in range(rows)]
    return [
        pa.RecordBatch.from_pylist(made[start : start + per_batch], schema=RESULTS)
        for start in range(0, rows, per_batch)
    ]


def apply(
    fn: Callable[..., Any],
    rows: int,
    *,
    order: Order = Order.ALL,
    run: Path | None = None,
    sums: list[CallSums] | None = None,
    busy_s: list[float] | None = None,
    read: Callable[[list[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter,
    taken: Callable[[], None] = lambda: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return the output of concurrent calls over numbered rows. `taken` is called for each batch of the output."""

    def record(seconds: float, made: CallSums) -> None:
        if sums is not None:
            sums.append(made)
        if busy_s is not None:
            busy_s.append(seconds)

    calls = ConcurrentCalls(**{"threads": 4, "order": order, "keys": ("k",) * (order is Order.KEY)} | options)
    over = over_concurrent_rows(
        "lookup",
        RowFunction(fn=fn, schema="k bigint, n bigint", calls=calls),
        RESULTS,
        WITH_LETTERS if calls.dead_letters else RESULTS,
        client_key=f"test {id(fn)}",
        run=run,
        record=record,
    )
    output = []
    for batch in over(read(batches(rows))):
        output += batch.to_pylist()
        taken()
    return output


def one_by_one(fn: Callable[..., Any], rows: int) -> list[dict[str, Any]]:
    return [row for batch in over_rows("lookup", fn, RESULTS, None)(batches(rows)) for row in batch.to_pylist()]


def call_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in (THREAD_NAME, row_input.THREAD_NAME)]


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "the condition was not met"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("penstock.engines.spark.calls.clients.CLIENTS", clients.Clients(idle_s=0.2))
    yield
    wait_for(lambda: not call_threads())


def squares(row: dict[str, Any]) -> Any:
    """Return a row, several rows or none, after a time that changes the order of the answers."""
    time.sleep(row["n"] * 7 % 5 / 2_000)
    match row["n"] % 4:
        case 0:
            return None
        case 1:
            return ({"k": row["k"], "n": row["n"] ** power} for power in (1, 2))
    return {"k": row["k"], "n": row["n"] ** 2}


async def squares_async(row: dict[str, Any]) -> Any:
    await asyncio.sleep(row["n"] * 7 % 5 / 2_000)
    return [{"k": row["k"], "n": row["n"] ** power} for power in (1, 2)] if row["n"] % 4 else None


def check_order(output: list[dict[str, Any]], expected: list[dict[str, Any]], order: Order) -> None:
    if order is Order.ALL:
        assert output == expected
    elif order is Order.KEY:
        for key in {row["k"] for row in expected}:
            assert [row for row in output if row["k"] == key] == [row for row in expected if row["k"] == key]
    assert Counter(map(str, output)) == Counter(map(str, expected))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(1, 24), st.sampled_from(ORDERS))
def test_the_output_equals_that_of_one_thread(rows: int, threads: int, order: Order) -> None:
    check_order(apply(squares, rows, order=order, threads=threads), one_by_one(squares, rows), order)


@pytest.mark.parametrize("order", ORDERS)
def test_coroutines_give_the_same_output(order: Order) -> None:
    expected = [{"k": n % 3, "n": n**power} for n in range(50) if n % 4 for power in (1, 2)]
    check_order(apply(squares_async, 50, order=order, threads=8), expected, order)


@pytest.mark.parametrize("order", ORDERS)
def test_retries_hide_failures_and_keep_the_order(order: Order) -> None:
    attempts: Counter[int] = Counter()

    def unreliable(row: dict[str, Any]) -> dict[str, Any]:
        attempts[row["n"]] += 1
        if attempts[row["n"]] <= row["n"] % 3:
            raise ConnectionError("try again")
        return row

    sums: list[CallSums] = []
    output = apply(unreliable, 40, order=order, retries=2, backoff_s=0.001, sums=sums)
    check_order(output, [{"k": n % 3, "n": n} for n in range(40)], order)
    assert attempts == {n: n % 3 + 1 for n in range(40)}
    assert (sums[0].rows, sums[0].retries, sums[0].calls) == (40, sum(n % 3 for n in range(40)), attempts.total())


def test_a_due_retry_waits_for_a_free_thread_without_a_busy_loop() -> None:
    begun = threading.Event()
    attempts: Counter[int] = Counter()
    rounds = 0

    def fail_first(row: dict[str, Any]) -> dict[str, Any]:
        attempts[row["n"]] += 1
        if row["n"] == 0 and attempts[0] == 1:
            raise ConnectionError("try again")
        if row["n"] == 1:  # occupies the only thread after the retry of row 0 is due
            begun.set()
            time.sleep(0.5)
        return row

    def threads() -> int:
        nonlocal rounds
        rounds += 1
        return 1

    calls = ConcurrentCalls(threads=1, retries=1, backoff_s=0.02, order=Order.NONE)
    caller = CallThreads(fail_first)
    waiting = dispatcher.Dispatcher(caller, calls, threads, str)
    try:
        answers = list(waiting.answers(row_input.RowInput(batches(2), lambda: None)))
    finally:
        caller.close()
    assert begun.is_set() and sorted(answer.row["n"] for answer in answers) == [0, 1]
    assert rounds < 50  # a busy loop makes thousands in half a second


@pytest.mark.parametrize("order", [Order.ALL, Order.NONE])
def test_as_many_calls_run_at_once_as_there_are_threads(order: Order) -> None:
    together = threading.Barrier(5)

    def meet(row: dict[str, Any]) -> dict[str, Any]:
        together.wait(60)
        return row

    assert len(apply(meet, 20, order=order, threads=5)) == 20


def test_calls_for_equal_keys_never_overlap_and_keep_their_order() -> None:
    running: Counter[int] = Counter()
    begun: defaultdict[int, list[int]] = defaultdict(list)

    def exclusive(row: dict[str, Any]) -> dict[str, Any]:
        running[row["k"]] += 1
        assert running[row["k"]] == 1
        begun[row["k"]].append(row["n"])
        time.sleep(0.001)
        running[row["k"]] -= 1
        return row

    apply(exclusive, 60, order=Order.KEY, threads=8)
    assert begun == {key: list(range(key, 60, 3)) for key in range(3)}


def test_a_failed_call_names_operator_line_row_and_attempts_and_leaves_no_thread() -> None:
    def divide(row: dict[str, Any]) -> dict[str, Any]:
        return {"k": 0, "n": 1 // (row["n"] - 5)}

    line = divide.__code__.co_firstlineno + 1
    with pytest.raises(
        UserFunctionError,
        match=rf"^operator 'lookup' \(2 attempts\) failed in .*test_concurrent_rows.py, line {line}: ZeroDivisionError: "
        r".*; row: \{'k': 2, 'n': 5\}",
    ):
        apply(divide, 30, retries=1, backoff_s=0)


def test_a_timed_out_call_reports_the_line_at_which_it_waits() -> None:
    release = threading.Event()

    def stuck(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 3:
            release.wait(60)
        return row

    line = stuck.__code__.co_firstlineno + 2
    with pytest.raises(UserFunctionError, match=rf"line {line}: TimeoutError: .* within 1 s; row: .*'n': 3"):
        apply(stuck, 10, timeout_s=1.0)
    release.set()


def test_a_call_that_never_returns_delays_the_others_by_no_more_than_its_timeout() -> None:
    release = threading.Event()
    sums: list[CallSums] = []

    def stuck(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 0:
            release.wait(60)
        return row

    try:
        output = apply(stuck, 40, timeout_s=1.0, threads=2, dead_letters=True, sums=sums)
        assert [row["n"] for row in output if row["dead_letter"] is None] == list(range(1, 40))
        wait_for(lambda: len(call_threads()) == 1)  # it ends when its call returns
    finally:
        release.set()
    assert (sums[0].timeouts, sums[0].failed_rows, sums[0].abandoned) == (1, 1, 1)


@pytest.mark.parametrize("order", ORDERS)
def test_failed_rows_go_to_the_dead_letters(order: Order) -> None:
    def odd(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] % 5 == 0:
            raise ValueError("even")
        return row

    output = apply(odd, 33, order=order, dead_letters=True, retries=1, backoff_s=0)
    results = [{"k": row["k"], "n": row["n"]} for row in output if row["dead_letter"] is None]
    letters = [row["dead_letter"] for row in output if row["dead_letter"] is not None]
    check_order(results, [{"k": n % 3, "n": n} for n in range(33) if n % 5], order)
    assert sorted(json.loads(letter["row"])["n"] for letter in letters) == [0, 5, 10, 15, 20, 25, 30]
    assert {(letter["operator"], letter["attempts"]) for letter in letters} == {("lookup", 2)}
    assert all("test_concurrent_rows.py, line" in letter["error"] for letter in letters)
    assert all(letter["error"].endswith("ValueError: even") for letter in letters)


def test_calls_that_never_return_fail_the_operator_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_ABANDONED_PER_THREAD", 2)
    release = threading.Event()

    def stuck(row: dict[str, Any]) -> dict[str, Any]:
        release.wait(60)
        return row

    try:
        with pytest.raises(UserFunctionError, match="more than 4 calls have not returned after their timeout"):
            apply(stuck, 1_000, timeout_s=0.01, threads=2, dead_letters=True)
    finally:
        release.set()


def test_a_coroutine_is_cancelled_at_its_timeout() -> None:
    cancelled = []

    async def stuck(row: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.sleep(0 if row["n"] else 60)
        except asyncio.CancelledError:
            cancelled.append(row["n"])
            raise
        return row

    output = apply(stuck, 10, timeout_s=1.0, dead_letters=True)
    assert [row["n"] for row in output if row["dead_letter"] is None] == list(range(1, 10))
    wait_for(lambda: cancelled == [0])


def test_the_number_of_threads_follows_the_plan_within_a_task(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"generation": 1, "plan": {"threads": {"lookup": 1}}}')
    in_flight, most, lock = 0, 0, threading.Lock()

    def count(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
            if row["n"] == 5:
                assert most == 1
                plan.write_text('{"generation": 2, "plan": {"threads": {"lookup": 6}}}')
        # From row 6 on, a call ends when six of them are there: with one thread it would wait forever.
        if row["n"] == 6 or row["n"] > 6:
            wait_for(lambda: most == 6)
        with lock:
            in_flight -= 1
        return row

    assert len(apply(count, 40, run=tmp_path)) == 40
    assert most == 6


@pytest.mark.parametrize("order", ORDERS)
def test_retries_and_timeouts_do_not_wait_for_the_next_batch(order: Order) -> None:
    """The second batch arrives only after a retry and a timeout of rows of the first one."""
    retried, cancelled = threading.Event(), threading.Event()
    attempts: Counter[int] = Counter()

    async def call(row: dict[str, Any]) -> dict[str, Any]:
        attempts[row["n"]] += 1
        if row["n"] == 0 and attempts[0] == 1:
            raise ConnectionError("try again")
        if row["n"] == 0:
            retried.set()
        if row["n"] == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return row

    def read(made: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield made[0]
        assert retried.wait(30) and cancelled.wait(30)
        yield from made[1:]

    output = apply(
        call, 14, order=order, read=read, threads=20, timeout_s=0.5, retries=1, backoff_s=0.01, dead_letters=True
    )
    assert sorted(row["n"] for row in output if row["dead_letter"] is None) == [0, *range(2, 14)]


def test_an_error_of_the_input_ends_the_task() -> None:
    def read(made: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield made[0]
        raise OSError("the input is broken")

    with pytest.raises(OSError, match="the input is broken"):
        apply(squares, 14, read=read)


@pytest.mark.parametrize("is_slow_after", [False, True])
def test_the_mean_calls_in_flight_never_exceed_the_threads(
    monkeypatch: pytest.MonkeyPatch, is_slow_after: bool
) -> None:
    """Calls continue while the task waits for its input, and while Spark takes its output."""
    monkeypatch.setattr(row_calls, "_ROWS_PER_OUTPUT", 2)

    def read(made: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in made:
            yield batch
            time.sleep(0.0 if is_slow_after else 0.04)

    def wait(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.02 + row["n"] % 2 * 0.02)
        return row

    sums: list[CallSums] = []
    busy_s: list[float] = []
    apply(
        wait,
        28,
        order=Order.NONE,
        threads=8,
        sums=sums,
        busy_s=busy_s,
        read=read,
        taken=lambda: time.sleep(0.04 if is_slow_after else 0.0),
    )
    assert sums[0].calls == 28
    assert 28 * 0.02 <= sums[0].call_s <= 8 * busy_s[0]


class Service:
    """A client that records its life."""

    def __init__(self) -> None:
        self.calls = 0
        self.closed = threading.Event()

    def square(self, n: int) -> int:
        assert not self.closed.is_set()
        self.calls += 1
        return n * n

    def close(self) -> None:
        self.closed.set()


def over_with_client(made: list[Service], fn: Callable[..., Any]) -> Callable[[int], list[Any]]:
    def create() -> Service:
        made.append(Service())
        return made[-1]

    function = RowFunction(fn=fn, schema="k bigint, n bigint", calls=ConcurrentCalls(threads=3, client=create))
    over = over_concurrent_rows("lookup", function, RESULTS, RESULTS, client_key=f"client {id(made)}")
    return lambda rows: [row["n"] for batch in over(iter(batches(rows))) for row in batch.to_pylist()]


def test_tasks_of_a_worker_share_one_client_that_is_closed_when_it_is_idle() -> None:
    made: list[Service] = []
    task = over_with_client(made, lambda row, service: {"k": 0, "n": service.square(row["n"])})
    assert task(9) == [n * n for n in range(9)]
    assert task(9) == [n * n for n in range(9)]
    wait_for(lambda: all(service.closed.is_set() for service in made))
    assert sum(service.calls for service in made) == 18
    assert task(3) == [0, 1, 4]  # a new one is created
    wait_for(made[-1].closed.is_set)
    wait_for(lambda: not any(thread.name == clients.CLOSER_NAME for thread in threading.enumerate()))


def test_pickled_functions_share_the_client_of_their_process() -> None:
    """Spark pickles the function for each task."""
    function = RowFunction(fn=lambda row, service: {"k": 0, "n": id(service)}, schema="k bigint, n bigint")
    calls = ConcurrentCalls(threads=2, client=Service)
    over = over_concurrent_rows("f", replace(function, calls=calls), RESULTS, RESULTS, client_key="pickled")
    pickled = cloudpickle.dumps(over)
    rows = [row for _ in range(2) for batch in cloudpickle.loads(pickled)(batches(5)) for row in batch.to_pylist()]
    assert len(rows) == 10 and len({row["n"] for row in rows}) == 1


def test_an_exception_closes_the_client() -> None:
    made: list[Service] = []

    def fail(row: dict[str, Any], service: Service) -> dict[str, Any]:
        raise KeyError(service.square(row["n"]))

    with pytest.raises(UserFunctionError, match="KeyError"):
        over_with_client(made, fail)(5)
    assert [service.closed.is_set() for service in made] == [True]


def test_an_asynchronous_client_lives_on_the_loop_of_its_calls() -> None:
    closed = []

    class Session:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()

        async def get(self, n: int) -> int:
            assert asyncio.get_running_loop() is self.loop
            await asyncio.sleep(0)
            return n + 1

        async def aclose(self) -> None:
            closed.append(asyncio.get_running_loop() is self.loop)

    async def create() -> Session:
        return Session()

    async def fetch(row: dict[str, Any], session: Session) -> dict[str, Any]:
        if row["n"] == 9:
            raise ValueError("the end")
        return {"k": 0, "n": await session.get(row["n"])}

    with pytest.raises(UserFunctionError, match="the end"):
        apply(fetch, 10, client=create)
    assert closed == [True]
    wait_for(lambda: not any(thread.name == event_loop.THREAD_NAME for thread in threading.enumerate()))


def test_a_failing_factory_is_named() -> None:
    def create() -> None:
        raise ConnectionRefusedError("no service")

    with pytest.raises(UserFunctionError, match="the client of operator 'lookup' failed in .*ConnectionRefusedError"):
        apply(lambda row, client: row, 3, client=create)


def test_a_value_that_does_not_match_the_schema_is_refused() -> None:
    with pytest.raises(DataflowError, match="'lookup'.*is not a valid int64"):
        apply(lambda row: {"k": row_input.THREAD_NAME, "n": 1}, 3)
