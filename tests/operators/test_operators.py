"""The operators of `penstock.operators`, compared with plain Python on random batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import operators
from penstock.dataflow import DataflowError, Kind

ROWS = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), max_size=12), max_size=5)


def as_rows(pairs: Sequence[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"key": key, "n": n} for key, n in pairs]


def output(instance: Any, batches: Sequence[Sequence[tuple[int, int]]], **options: Any) -> list[dict[str, Any]]:
    runner = penstock.OperatorRunner(instance, schema="key int, n int", **options)
    return [row for batch in batches for row in runner.feed(as_rows(batch))]


def of_key(rows: Sequence[dict[str, Any]], key: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["key"] == key]


@given(ROWS)
def test_row_functions(batches: Any) -> None:
    rows = [row for batch in batches for row in as_rows(batch)]
    assert output(operators.Map(lambda row: row | {"n": -row["n"]}), batches) == [
        row | {"n": -row["n"]} for row in rows
    ]
    assert output(operators.Filter(lambda row: row["n"] > 0), batches) == [row for row in rows if row["n"] > 0]
    assert output(operators.FlatMap(lambda row: [row] * max(0, row["n"])), batches) == [
        row for row in rows for _ in range(row["n"])
    ]
    seen: list[Any] = []
    assert output(operators.ForEach(seen.append), batches) == rows == seen


@given(st.lists(ROWS, min_size=2, max_size=3))
def test_a_barrier_pairs_the_rows_of_a_key(ports: Any) -> None:
    runner = penstock.OperatorRunner(
        operators.Barrier(lambda *rows: {"key": rows[0]["key"], "all": [row["n"] for row in rows]}),
        inputs=len(ports),
        keys=["key"],
        schema="key int, all array<int>",
    )
    emitted: list[dict[str, Any]] = []
    for number in range(max(map(len, ports))):
        emitted += runner.feed(*(as_rows(port[number]) if number < len(port) else [] for port in ports))
    for key in range(3):
        columns = [[n for batch in port for of, n in batch if of == key] for port in ports]
        assert [row["all"] for row in of_key(emitted, key)] == [list(row) for row in zip(*columns, strict=False)]


@given(ROWS, st.floats(0.01, 1.0))
def test_an_exponential_average_is_the_weighted_sum_of_all_values(batches: Any, weight: float) -> None:
    emitted = output(operators.ExponentialAverage("n", weight), batches, keys=["key"])
    for key in range(3):
        values = [n for batch in batches for of, n in batch if of == key]
        for count, row in enumerate(of_key(emitted, key), start=1):
            weights = [weight * (1 - weight) ** age for age in range(count - 1)] + [(1 - weight) ** (count - 1)]
            assert row["average"] == pytest.approx(
                sum(w * v for w, v in zip(weights, reversed(values[:count]), strict=True)), abs=1e-9
            )


def test_an_exponential_average_ignores_missing_values() -> None:
    runner = penstock.OperatorRunner(operators.ExponentialAverage("n", 0.5), global_state=True, schema="n double")
    values = [None, 4.0, None, float("nan"), 2.0]
    assert [row["average"] for row in runner.feed([{"n": n} for n in values])] == [None, 4.0, 4.0, 4.0, 3.0]


@given(ROWS, st.integers(1, 4))
def test_tumbling_windows(batches: Any, size: int) -> None:
    window = operators.TumblingWindow(size, lambda rows: {"key": rows[0]["key"], "all": [row["n"] for row in rows]})
    emitted = output(window, batches, keys=["key"])
    for key in range(3):
        values = [n for batch in batches for of, n in batch if of == key]
        complete = [values[i : i + size] for i in range(0, len(values) - size + 1, size)]
        assert [row["all"] for row in of_key(emitted, key)] == complete


@given(ROWS, st.integers(1, 4), st.integers(1, 6))
def test_sliding_windows(batches: Any, size: int, slide: int) -> None:
    def result(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"key": rows[0]["key"], "all": [row["n"] for row in rows]}

    emitted = output(operators.SlidingWindow(size, result, slide=slide), batches, keys=["key"])
    for key in range(3):
        values = [n for batch in batches for of, n in batch if of == key]
        complete = [values[i : i + size] for i in range(0, len(values) - size + 1, slide)]
        assert [row["all"] for row in of_key(emitted, key)] == complete


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: operators.ExponentialAverage("n", 0), "weight=0"),
        (lambda: operators.ExponentialAverage("n", 1.5), r"weight=1\.5"),
        (lambda: operators.TumblingWindow(0, len), "rows=0"),
        (lambda: operators.SlidingWindow(3, len, slide=0), "slide=0"),
    ],
)
def test_wrong_parameters_are_refused(build: Any, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        build()


def test_kinds_in_a_dataflow() -> None:
    flow = penstock.Dataflow("library")
    numbers = flow.source("numbers", penstock.generate(lambda n: (n, n), schema="key int, n int", rows=9))
    doubled = flow.operator("doubled", operators.Map(dict), inputs=[numbers], schema="key int, n int")
    flow.operator("window", operators.TumblingWindow(3, len), inputs=[doubled], keys=["key"], schema="n int")
    assert (flow["doubled"].kind, flow["window"].kind) == (Kind.STATELESS, Kind.KEYED)
    with pytest.raises(DataflowError, match="waits for 3 rows, but it is stateless"):
        flow.operator("other", operators.TumblingWindow(3, len), inputs=[doubled], schema="n int")
