"""Rows of user functions: values that do not match the schema are refused and never become null."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.dataflow import DataflowError
from penstock.engines.spark.compile.row_functions import over_rows
from penstock.engines.spark.storage.row_conversion import batch_from_columns, batch_from_rows

STRUCT = pa.struct([("a", pa.int32())])
MAP = pa.map_(pa.string(), pa.int64())
TWO = pa.schema([("n", pa.int64()), ("s", pa.string())])


def one_column(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("x", kind)])


@pytest.mark.parametrize(
    ("made", "schema", "rows"),
    [
        ([5, None], one_column(pa.int64()), [{"x": 5}, {"x": None}]),
        ([{"x": 5}, (6,), [7], 8.0], one_column(pa.int64()), [{"x": 5}, {"x": 6}, {"x": 7}, {"x": 8}]),
        ([{"a": 1}, {"x": {"a": 2}}, ({"a": 3},)], one_column(STRUCT), [{"x": {"a": n}} for n in (1, 2, 3)]),
        (
            [{"k": 1, "l": 2}, {}, {"x": {"k": 3}}],
            one_column(MAP),
            [{"x": [("k", 1), ("l", 2)]}, {"x": []}, {"x": [("k", 3)]}],
        ),
        ([[1, 2], [], ([3],)], one_column(pa.list_(pa.int64())), [{"x": [1, 2]}, {"x": []}, {"x": [3]}]),
        ([(1, "a"), [2, None], {"s": "c", "n": 3}], TWO, [{"n": 1, "s": "a"}, {"n": 2, "s": None}, {"n": 3, "s": "c"}]),
    ],
)
def test_a_row_is_a_dict_a_tuple_or_the_bare_value_of_an_only_column(
    made: list[Any], schema: pa.Schema, rows: list[dict[str, Any]]
) -> None:
    assert batch_from_rows(made, schema, "it").to_pylist() == rows


@pytest.mark.parametrize(
    ("made", "schema", "message"),
    [
        ([{"n": 1, "s": "a"}, {"n": 1, "S": "a"}], TWO, "a row with the columns n, S, but its columns are n, s"),
        (
            [{"n": 1, "s": "a"}, {"n": 1}],
            TWO,
            "a row with the columns n, but its columns are n, s; return exactly these, with None for",
        ),
        ([{"n": 1, "s": "a", "t": 2}], TWO, "a row with the columns n, s, t, but its columns are n, s"),
        ([(1, "a"), (1, "a", 2)], TWO, "a row of 3 values, but its columns are n, s"),
        ([7], TWO, "7 as a row, but its columns are n, s"),
        ([{"y": 1}], one_column(pa.int64()), "a row with the columns y, but its columns are x"),
        ([(1, 2)], one_column(pa.list_(pa.int64())), "a row of 2 values, but its columns are x"),
        (
            [1, 2.7],
            one_column(pa.int32()),
            "returns a value in column 'x' that is not a valid int32: 2.7 is not a whole number",
        ),
        (["a"], one_column(pa.int32()), "returns a value in column 'x' that is not a valid int32: .*'a'"),
        (
            [1, None],
            pa.schema([pa.field("x", pa.int64(), False)]),
            "returns a value in column 'x' .*NOT NULL, but a value is None",
        ),
    ],
)
def test_values_outside_the_schema_are_refused_in_one_sentence(
    made: list[Any], schema: pa.Schema, message: str
) -> None:
    with pytest.raises(DataflowError, match=f"^the function of 'f' .*{message}"):
        batch_from_rows(made, schema, "the function of 'f'")


def test_columns_are_numpy_or_arrow_arrays() -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    at = np.array(["2026-01-01T00:00:00.001", "2026-01-01"], dtype="datetime64[ms]")
    columns = {"at": at, "s": pa.array(["a", None]), "n": np.array([1, 2], dtype=np.uint16)}
    batch = batch_from_columns(columns, 2, schema, "it")
    assert batch.schema == schema
    assert [(row["n"], row["s"], row["at"].isoformat()) for row in batch.to_pylist()] == [
        (1, "a", "2026-01-01T00:00:00.001000+00:00"),
        (2, None, "2026-01-01T00:00:00+00:00"),
    ]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([1, 2], "is vectorised and returns list; return a dict with one array for each of the columns n, s"),
        ({"n": [1, 2]}, "returns a row with the columns n, but its columns are n, s"),
        ({"n": [1, 2], "s": ["a"]}, "returns 1 values in column 's' for 2 row numbers; return one value per row"),
        ({"n": np.array([1.5, 2.0]), "s": ["a", "b"]}, "in column 'n' that is not a valid int64: .*1.5"),
        ({"n": np.array([1.5, 2], object), "s": ["a", "b"]}, "in column 'n' that is not a valid int64: 1.5 is not"),
        (
            {"n": [1, 2], "s": pa.array([1, 2])},
            "in column 's' that is not a valid string: the array has the type int64",
        ),
    ],
)
def test_columns_that_do_not_match_the_schema_are_refused_in_a_sentence(columns: Any, said: str) -> None:
    with pytest.raises(DataflowError, match=f"^the function of 'f' .*{said}"):
        batch_from_columns(columns, 2, TWO, "the function of 'f'")


def over(fn: Callable[[dict[str, Any]], Any], rows: pa.RecordBatch, schema: pa.Schema) -> list[dict[str, Any]]:
    batches: Iterator[pa.RecordBatch] = over_rows("f", fn, schema, None)([rows])
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_row_function_gives_rows_of_its_schema() -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
    few: dict[int, Any] = {1: None, 2: [{"n": 2, "s": "b"}] * 2, 3: {"n": 3, "s": None}}
    assert over(lambda row: few[row["n"]], rows, TWO) == [{"n": 2, "s": "b"}] * 2 + [{"n": 3, "s": None}]
    for given, message in (
        ({"N": 1, "s": ""}, "a row with the columns N, s,"),
        ({"n": 1}, "a row with the columns n,"),
        ([5], "5 as a row,"),
    ):
        with pytest.raises(
            DataflowError, match=rf"the function of 'f' \(.*\) returns {message} but its columns are n, s"
        ):
            over(lambda row, given=given: given, rows, TWO)
    with pytest.raises(
        DataflowError, match=r"the function of 'f' \(.*\) returns 5; return a dict, several dicts, or None$"
    ):
        over(lambda row: 5, rows, TWO)


def test_a_row_function_sees_maps_as_dicts() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([[("k", 1)], None], MAP)], names=["m"])
    seen: list[Any] = []
    assert over(lambda row: seen.append(row) or row, rows, rows.schema) == [{"m": [("k", 1)]}, {"m": None}]
    assert seen == [{"m": {"k": 1}}, {"m": None}]
