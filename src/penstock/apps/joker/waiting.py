"""Operators that wait for each row instead of multiplying, so that more slots than cores can be used.

The first operator is keyed. It emits, with each row, how many rows of its key it has seen, so the output shows whether
its state is exact. A stateless operator and one with global state may follow.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour

SCHEMA = "id bigint, key bigint, seen bigint"
COLUMNS = ("id", "key", "seen")
KEYS = 200
_SEED = 0x77616974


def generator(n: int) -> tuple[int, int, int]:
    """Return row n: its number, its key, and no rows seen."""
    return n, random_bits(n, _SEED) % KEYS, 0


def flow(
    output: Sink | None = None,
    *,
    keyed_ms: float = 10.0,
    stateless_ms: float | None = 10.0,
    global_ms: float | None = None,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> penstock.Dataflow:
    """Return the dataflow. An operator without a time is left out."""
    flow = penstock.Dataflow("waiting")
    stream = flow.source("numbers", generated(generator, SCHEMA, rows, rows_per_s))
    stream = stream.keyed("keyed", _counting(keyed_ms / 1e3, "key"), keys=["key"], columns=COLUMNS)
    if stateless_ms is not None:
        stream = stream.rows("stateless", _waiting(stateless_ms / 1e3), schema=SCHEMA)
    if global_ms is not None:
        stream = stream.global_state("global", _counting(global_ms / 1e3, None), columns=COLUMNS)
    stream.sink("out", default_sink(output, rows))
    return flow


def behaviour(
    *, keyed_ms: float = 10.0, stateless_ms: float | None = 10.0, global_ms: float | None = None
) -> Behaviour:
    times = {"keyed": keyed_ms, "stateless": stateless_ms, "global": global_ms}
    return Behaviour(
        operators={
            name: OperatorBehaviour(service_s=Fixed(value=ms / 1e3), cpu_share=0.0)
            for name, ms in times.items()
            if ms is not None
        }
    )


def oracle(rows: int) -> Counter[tuple[str, int, int]]:
    """Return each id once, and (key, rows of the key seen so far): each key counts from 1 without a gap."""
    counts = Counter(generator(n)[1] for n in range(rows))
    seen = Counter(("key", key, number) for key, count in counts.items() for number in range(1, count + 1))
    return seen + Counter(("id", n, 1) for n in range(rows))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, int, int]]:
    result: Counter[tuple[str, int, int]] = Counter()
    for row in output:
        result["key", row["key"], row["seen"]] += 1
        result["id", row["id"], 1] += 1
    return result


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))


def _waiting(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def operator(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(seconds)
        return row

    return operator


def _counting(seconds: float, key: str | None) -> Callable[[DataFrame], DataFrame]:
    """Return an operator that counts rows in its state; the keyed one also numbers the rows of each key."""

    def of_key(_: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count = state.get[0] if state.exists else 0
        for frame in frames:
            time.sleep(seconds * len(frame))
            if key is not None:
                frame = frame.assign(seen=range(count + 1, count + len(frame) + 1))
            count += len(frame)
            yield frame[list(COLUMNS)]
        state.update((count,))

    def operator(rows: DataFrame) -> DataFrame:
        return rows.groupBy(key or lit(0).alias("all_rows")).applyInPandasWithState(
            of_key, SCHEMA, "count bigint", "update", "NoTimeout"
        )

    return operator
