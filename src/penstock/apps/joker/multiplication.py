"""The multiplication operator: it multiplies a number of each row many times, and may drop or duplicate rows.

The keyed operator also counts the rows of each key in its state. Names of operators carry their work, as in
`m1_1024`: 1024 multiplications. A multiplication by 3 modulo a prime has a closed form, which the oracles use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from penstock.apps.input_output import default_sink, generated
from penstock.apps.seeded_random import random_bits
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.sinks import Sink
from penstock.dataflow.stream import Stream
from penstock.engines.simulated import (
    Behaviour,
    ChangePause,
    Fixed,
    OperatorBehaviour,
    SourceBehaviour,
    ThreadCosts,
)

SCHEMA = "id bigint, key bigint, other bigint, value bigint"
COLUMNS = ("id", "key", "other", "value")
FACTOR, MODULUS = 3, 2_147_483_647
_SEED = 0x6A6F6B6572
_KEYS = 1000
_SEPARATOR = "_"


def generator(n: int) -> tuple[int, int, int, int]:
    """Return row n: its number, two keys, and the number to multiply."""
    bits = random_bits(n, _SEED)
    return n, bits % _KEYS, (bits >> 20) % _KEYS, 1 + bits % (MODULUS - 1)


def multiplied(value: int, times: int) -> int:
    """Multiply one after another, because the work is the purpose.

    >>> multiplied(5, 100) == 5 * pow(FACTOR, 100, MODULUS) % MODULUS
    True
    """
    for _ in range(times):
        value = value * FACTOR % MODULUS
    return value


def emitted_ids(id_: int, selectivity: float) -> list[int]:
    """Return the ids of the rows that replace a row: several for a selectivity above 1, at most one below it.

    A filter decides by a hash of the id, which is as good as at random and the same in every run.

    >>> emitted_ids(7, 1.0), emitted_ids(7, 4.0)
    ([7], [28, 29, 30, 31])
    """
    if selectivity > 1.0:
        copies = round(selectivity)
        return [id_ * copies + i for i in range(copies)]
    kept = selectivity >= 1.0 or (random_bits(id_, _SEED + 1) & 0xFFFFFFFF) < selectivity * 2.0**32
    return [id_] if kept else []


def worked(row: Mapping[str, Any], times: int, selectivity: float) -> Iterator[dict[str, Any]]:
    """Multiply the number of a row, and yield the rows that replace it."""
    value = multiplied(int(row["value"]), times)
    for id_ in emitted_ids(int(row["id"]), selectivity):
        yield {"id": id_, "key": row["key"], "other": row["other"], "value": value}


def expected(rows: Iterable[Mapping[str, Any]], path: Iterable[tuple[int, float]]) -> list[dict[str, Any]]:
    """Return the rows that leave a path of (multiplications, selectivity), by the closed form of the product."""
    result = [dict(row) for row in rows]
    for times, selectivity in path:
        product = pow(FACTOR, times, MODULUS)
        result = [
            {**row, "id": id_, "value": row["value"] * product % MODULUS}
            for row in result
            for id_ in emitted_ids(row["id"], selectivity)
        ]
    return result


def generated_rows(rows: int) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, generator(n), strict=True)) for n in range(rows)]


def counted(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    """Return how often each id occurs with each number."""
    return Counter((row["id"], row["value"]) for row in output)


def source(flow: Dataflow, rows: int | None, rows_per_s: float | None, name: str = "numbers") -> Stream:
    return flow.source(name, generated(generator, SCHEMA, rows, rows_per_s))


def multiply(stream: Stream, name: str, times: int, selectivity: float = 1.0) -> Stream:
    """Add a stateless multiplication operator."""

    def operator(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        return worked(row, times, selectivity)

    return stream.rows(operator_name(name, times), operator, schema=SCHEMA, selectivity=selectivity)


def keyed_multiply(
    stream: Stream | list[Stream], name: str, times: int, *, key: str = "key", selectivity: float = 1.0
) -> Stream:
    """Add a keyed multiplication operator, which counts the rows of each key in its state."""
    inputs = stream if isinstance(stream, list) else [stream]
    return inputs[0].flow.keyed(
        operator_name(name, times),
        _keyed_function(times, selectivity, key),
        keys=[key],
        inputs=inputs,
        columns=COLUMNS,
        selectivity=selectivity,
    )


def global_multiply(stream: Stream, name: str, times: int, selectivity: float = 1.0) -> Stream:
    """Add a multiplication operator with one count for all rows, and therefore with one replica."""
    function = _keyed_function(times, selectivity, None)
    return stream.global_state(operator_name(name, times), function, columns=COLUMNS, selectivity=selectivity)


def _keyed_function(times: int, selectivity: float, key: str | None) -> Callable[[DataFrame], DataFrame]:
    def of_key(_: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count = state.get[0] if state.exists else 0
        for frame in frames:
            count += len(frame)
            rows = [result for row in frame.to_dict("records") for result in worked(row, times, selectivity)]
            yield pd.DataFrame(rows, columns=list(COLUMNS))
        state.update((count,))

    def operator(rows: DataFrame) -> DataFrame:
        return rows.groupBy(key or lit(0).alias("all_rows")).applyInPandasWithState(
            of_key, SCHEMA, "count bigint", "update", "NoTimeout"
        )

    return operator


def finish(stream: Stream, output: Sink | None, rows: int | None, name: str = "out") -> Dataflow:
    stream.sink(name, default_sink(output, rows))
    return stream.flow


def operator_name(name: str, times: int) -> str:
    """
    >>> operator_name("m1", 1024), multiplications("m1_1024"), multiplications("out")
    ('m1_1024', 1024, 0)
    """
    return f"{name}{_SEPARATOR}{times}"


def multiplications(operator: str) -> int:
    """Return the work in the name of an operator; 0 if there is none."""
    times = operator.rpartition(_SEPARATOR)[2]
    return int(times) if times.isdigit() else 0


def behaviour(
    flow: Dataflow,
    *,
    multiplication_s: float = 2e-6,
    rows_per_s: float | None = None,
    thread: ThreadCosts | None = None,
) -> Behaviour:
    """Return the simulated costs of a dataflow of this package. Every time is an assumption, not a measurement.

    Args:
        flow: The dataflow.
        multiplication_s: Time of one multiplication.
        rows_per_s: Rate of each source; default: the rate that the dataflow declares.
        thread: Costs and size of the queues between threads; default: queues of 100 rows without costs, as Joker bounds
            its queues.
    """
    operators = {
        operator.name: OperatorBehaviour(
            service_s=Fixed(value=multiplications(operator.name) * multiplication_s),
            state_rows=_KEYS if operator.kind.has_state else 0,
            state_bytes=_KEYS * 24 if operator.kind.has_state else 0,
        )
        for operator in flow.operators
        if operator.kind not in (Kind.SOURCE, Kind.SINK)
    }
    sources = {
        operator.name: SourceBehaviour(rates=((0.0, rows_per_s),), interarrival=Fixed(value=1.0))
        for operator in flow.operators
        if operator.kind is Kind.SOURCE and rows_per_s is not None
    }
    return Behaviour(
        operators=operators,
        sources=sources,
        change=ChangePause(fixed_s=0.5),  # Joker applies a change in less than a second
        thread=thread or ThreadCosts(queue_rows=100),
    )
