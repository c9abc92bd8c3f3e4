"""The contract suite of the operator classes of `penstock.operators`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

import penstock
from penstock import operators

PORTS = 2
COLUMNS = "key int, n int, average double, all array<int>"
ARRIVALS = st.lists(st.tuples(st.integers(0, PORTS - 1), st.integers(0, 2), st.integers(-9, 9)), max_size=30)


def listed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"key": rows[0]["key"], "all": [row["n"] for row in rows]}


# A function per class, because an instance may not be shared by the runs that are compared.
BUILD: dict[str, Callable[[], Any]] = {
    "Barrier": lambda: operators.Barrier(lambda *rows: listed(rows)),
    "ExponentialAverage": lambda: operators.ExponentialAverage("n", 0.25),
    "Filter": lambda: operators.Filter(lambda row: row["n"] > 0),
    "FlatMap": lambda: operators.FlatMap(lambda row: [row] * max(0, row["n"])),
    "ForEach": lambda: operators.ForEach(lambda row: None),
    "Map": lambda: operators.Map(lambda row: row | {"n": -row["n"]}),
    "SlidingWindow": lambda: operators.SlidingWindow(3, listed, slide=2),
    "TumblingWindow": lambda: operators.TumblingWindow(3, listed),
}
every = pytest.mark.parametrize("build", BUILD.values(), ids=BUILD.keys())


def output(instance: Any, batches: Sequence[Sequence[tuple[int, int, int]]]) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of each key in their order. Rows of other keys may be between them."""
    inputs = PORTS if isinstance(instance, operators.Barrier) else 1
    runner = penstock.OperatorRunner(instance, inputs=inputs, keys=["key"], schema=COLUMNS)
    emitted: dict[int, list[dict[str, Any]]] = {}
    for batch in batches:
        ports = [[{"key": key, "n": n} for of, key, n in batch if of % inputs == port] for port in range(inputs)]
        for row in runner.feed(*ports):
            emitted.setdefault(row["key"], []).append(row)
    return emitted


def test_every_operator_class_is_in_the_suite() -> None:
    assert set(operators.__all__) == set(BUILD)


@every
@given(arrivals=ARRIVALS, data=st.data())
def test_the_output_of_a_key_does_not_depend_on_batches(
    build: Callable[[], Any], arrivals: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Spark divides the input into batches as it likes, and a restart divides it differently."""
    ends = sorted(data.draw(st.lists(st.integers(0, len(arrivals)), max_size=5)))
    divided = [arrivals[low:high] for low, high in zip([0, *ends], [*ends, len(arrivals)], strict=True)]
    assert output(build(), divided) == output(build(), [arrivals])


@every
def test_a_pickled_instance_gives_the_same_output(build: Callable[[], Any]) -> None:
    """Spark pickles the instance for each task."""
    arrivals = [(n % PORTS, n % 3, n % 7 - 2) for n in range(40)]
    instance = build()
    pickled = cloudpickle.loads(cloudpickle.dumps(instance))
    expected = output(instance, [arrivals])
    assert expected and output(pickled, [arrivals]) == expected
    again = cloudpickle.loads(cloudpickle.dumps(instance))  # after use: the instance itself keeps no state
    assert output(again, [arrivals]) == expected


@every
def test_no_input_gives_no_output(build: Callable[[], Any]) -> None:
    assert output(build(), [[], []]) == {}
