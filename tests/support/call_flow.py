"""Dataflows with concurrent calls that fail, time out and are retried, and their output in closed form.

Options are numbers, because the driver processes of the tests receive them as words.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import TaskContext

import penstock
from penstock.dataflow import Dataflow
from penstock.dataflow.sinks import Sink

ORDERS: tuple[bool | str, ...] = (True, "key", False)
TIMEOUT_S = 4.0
STUCK = 111  # the first attempt of this row exceeds the timeout
KEYS = 60  # calls for equal keys never overlap, so there are more keys than threads

_seen: Counter[int] = Counter()  # attempts in this worker process
_positions = itertools.count()  # of rows in this worker process


def seconds(n: int, attempt: int) -> float:
    return 3 * TIMEOUT_S if n == STUCK and attempt == 1 else 0.002


def answer(n: int, attempt: int) -> dict[str, Any] | None:
    """Square a number: every seventh fails at first, every fiftieth always, and every thirteenth gives no row."""
    if n % 50 == 49 or (n % 7 == 3 and attempt == 1):
        raise ConnectionError(f"no answer for {n}")
    return None if n % 13 == 5 else {"n": n, "squared": n * n}


def call(row: dict[str, Any]) -> dict[str, Any] | None:
    n = row["n"]
    _seen[n] += 1
    attempt = _seen[n]
    time.sleep(seconds(n, attempt))
    return answer(n, attempt)


async def call_async(row: dict[str, Any]) -> dict[str, Any] | None:
    n = row["n"]
    _seen[n] += 1
    attempt = _seen[n]
    await asyncio.sleep(seconds(n, attempt))
    return answer(n, attempt)


def _numbers(made: Dataflow, rows: int, rows_per_s: float) -> penstock.Stream:
    source = penstock.generate(lambda n: (n, n % KEYS), schema="n bigint, k bigint", rows=rows, rows_per_s=rows_per_s)
    return made.source("numbers", source)


def _options(order: int, backoff_s: float) -> dict[str, Any]:
    ordered = ORDERS[order]
    return {
        "threads": 6,
        "timeout_s": TIMEOUT_S,
        "retries": 2,
        "backoff_s": backoff_s,
        "ordered": ordered,
        "keys": ["k"] if ordered == "key" else None,
    }


def flow(*, output: Sink, rows: int, rows_per_s: float, order: int = 0, coroutines: int = 0) -> Dataflow:
    """Return a dataflow whose calls may fail for good; such rows have the square -1."""
    made = penstock.Dataflow("calls")
    called = _numbers(made, rows, rows_per_s).rows(
        "call",
        call_async if coroutines else call,
        "n bigint, squared bigint",
        dead_letters=True,
        **_options(order, 0.001),
    )
    failed = called.dead_letters.stateless("failed", lambda df: df.selectExpr("get_json_object(row, '$.n') as n"))
    both = made.stateless(
        "both",
        inputs=[
            called.stateless("answered", lambda df: df.selectExpr("n", "squared")),
            failed.stateless(
                "unanswered", lambda df: df.selectExpr("cast(n as bigint) as n", "cast(-1 as bigint) as squared")
            ),
        ],
    )
    both.sink("out", output)
    return made


def check(rows: Sequence[dict[str, Any]], count: int, **_: int) -> list[str]:
    """Return what is wrong with the output for the numbers below `count`."""
    expected = {n: -1 if n % 50 == 49 else n * n for n in range(count) if n % 50 == 49 or n % 13 != 5}
    wrong = _differences(rows, expected)
    return [] if wrong is None else [wrong]


def _differences(rows: Sequence[dict[str, Any]], expected: dict[int, int]) -> str | None:
    written = Counter((row["n"], row["squared"]) for row in rows)
    wrong = written - Counter(expected.items()), Counter(expected.items()) - written
    return None if wrong == (Counter(), Counter()) else f"wrong or doubled: {wrong[0]}, missing: {wrong[1]}"


# ---- the order of the results within a task


def call_or_none(row: dict[str, Any]) -> dict[str, Any] | None:
    return None if row["n"] % 50 == 49 else call(row)


async def call_or_none_async(row: dict[str, Any]) -> dict[str, Any] | None:
    return None if row["n"] % 50 == 49 else await call_async(row)


def arrived(row: dict[str, Any]) -> dict[str, Any]:
    """Add the task and the position at which the row arrives behind the calls."""
    context = TaskContext.get()
    assert context is not None
    return {**row, "task": context.taskAttemptId(), "position": next(_positions)}


def flow_with_positions(*, output: Sink, rows: int, rows_per_s: float, order: int, coroutines: int) -> Dataflow:
    """Return a dataflow that records the order in which the results leave the operator."""
    made = penstock.Dataflow("ordered_calls")
    function: Callable[..., Any] = call_or_none_async if coroutines else call_or_none
    called = _numbers(made, rows, rows_per_s).rows("call", function, "n bigint, squared bigint", **_options(order, 0.1))
    called.rows("arrived", arrived, "n bigint, squared bigint, task bigint, position bigint").sink("out", output)
    return made


def disordered(rows: Sequence[dict[str, Any]], *, same_key: bool) -> int:
    """Return how many rows a later one has overtaken within a task, with the same key or with any key."""
    by_task: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        by_task[row["task"], row["n"] % KEYS if same_key else 0].append((row["position"], row["n"]))
    numbers = ([n for _, n in sorted(positions)] for positions in by_task.values())
    return sum(later < earlier for task in numbers for earlier, later in itertools.pairwise(task))


def differences_of_squares(rows: Sequence[dict[str, Any]], count: int) -> str | None:
    return _differences(rows, {n: n * n for n in range(count) if n % 50 != 49 and n % 13 != 5})
