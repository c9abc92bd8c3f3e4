"""A dataflow with concurrent calls that fail, time out and are retried, and its output in closed form."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import penstock
from penstock.dataflow import Dataflow
from penstock.dataflow.sinks import Sink

_seen: Counter[int] = Counter()  # attempts in this worker process


def call(row: dict[str, Any]) -> dict[str, Any] | None:
    """Square a number: every seventh fails at first, every fiftieth always, and every thirteenth gives no row."""
    n = row["n"]
    _seen[n] += 1
    time.sleep(0.002)
    if n % 50 == 49 or (n % 7 == 3 and _seen[n] == 1):
        raise ConnectionError(f"no answer for {n}")
    return None if n % 13 == 5 else {"n": n, "squared": n * n}


def flow(*, output: Sink, rows: int, rows_per_s: float, ordered: bool | str = True) -> Dataflow:
    made = penstock.Dataflow("calls")
    numbers = made.source(
        "numbers", penstock.generate(lambda n: n, schema="n bigint", rows=rows, rows_per_s=rows_per_s)
    )
    called = numbers.rows(
        "call",
        call,
        "n bigint, squared bigint",
        threads=6,
        timeout_s=30.0,
        retries=1,
        backoff_s=0.001,
        ordered=ordered,
        keys=["n"] if ordered == "key" else None,
        dead_letters=True,
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


def check(rows: Sequence[dict[str, Any]], count: int) -> list[str]:
    """Return what is wrong with the output for the numbers below `count`."""
    expected = {n: -1 if n % 50 == 49 else n * n for n in range(count) if n % 50 == 49 or n % 13 != 5}
    written = Counter((row["n"], row["squared"]) for row in rows)
    wrong = written - Counter(expected.items()), Counter(expected.items()) - written
    return [] if wrong == (Counter(), Counter()) else [f"wrong or doubled: {wrong[0]}, missing: {wrong[1]}"]
