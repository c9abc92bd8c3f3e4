"""A function that cannot be called with the arguments that it will receive is refused when it is declared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import penstock


async def asynchronous(row: dict[str, Any]) -> dict[str, Any]:
    return row


def rows(fn: Callable[..., Any], **options: Any) -> None:
    flow = penstock.Dataflow("functions")
    numbers = flow.source("numbers", penstock.generate(int, schema="n bigint", rows=1))
    numbers.rows("each", fn, schema="n bigint", **options)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: rows(lambda: None),
            r"Operator 'each' is given a function \(.*\.py, line \d+\) that .*; it must take a row\.$",
        ),
        (lambda: rows(lambda row, client: {}), "it must take a row"),
        (lambda: rows(lambda row: {}, threads=2, client=dict), "it must take a row and a client"),
        (lambda: penstock.generate(lambda: 1, schema="n bigint", rows=1), r"generate\(\) .* must take a row number"),
        (
            lambda: penstock.generate(lambda: 1, schema="n bigint", rows=1, vectorised=True),
            "must take an array of row numbers",
        ),
        (lambda: penstock.foreach_batch(lambda df: None), r"foreach_batch\(\) .* a DataFrame and a batch number"),  # type: ignore[arg-type, misc]
        (lambda: penstock.spark_source(lambda: None), r"spark_source\(\) .* must take a SparkSession"),
    ],
)
def test_a_function_with_other_parameters_is_refused(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(penstock.DataflowError, match=message):
        declare()


def test_optional_parameters_partial_functions_and_builtins_are_accepted() -> None:
    rows(lambda row, factor=2: {})
    rows(partial(lambda factor, row: {}, 2))
    rows(dict)
    rows(lambda row, client: {}, threads=2, client=dict)
    rows(asynchronous)
    penstock.foreach_batch(print)
    penstock.generate(int, schema="n bigint", rows=1)
