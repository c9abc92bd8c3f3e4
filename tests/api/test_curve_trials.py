"""The dataflow of a trial declares the operator as the dataflow of the user does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import penstock
from penstock.api.curve_trials import alone_with
from penstock.dataflow import Dataflow
from penstock.dataflow.operators import Kind, RowFunction

SCHEMA = StructType([StructField("n", LongType())])


def same(row: Any, client: object = None) -> Any:
    return row


def flow_with(**options: Any) -> Dataflow:
    flow = penstock.Dataflow("shop")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10))
    results = numbers.rows("lookup", same, "n bigint", **options)
    results.sink("out", penstock.noop())
    if options.get("dead_letters"):
        results.dead_letters.sink("failed", penstock.noop())
    return flow


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threads": 8},
        {"threads": 8, "timeout_s": 2.0, "retries": 3, "backoff_s": 0.5, "ordered": False},
        {"threads": 2, "ordered": "key", "keys": ["n"], "client": dict},
        {"threads": 2, "dead_letters": True},
    ],
)
def test_all_options_of_the_calls_are_kept_except_the_threads(options: dict[str, Any]) -> None:
    declared = flow_with(**options)["lookup"].fn
    alone = alone_with(flow_with(**options)["lookup"], SCHEMA, [{"n": 1}])
    measured = alone["lookup"].fn
    assert isinstance(declared, RowFunction) and isinstance(measured, RowFunction)
    expected = None if declared.calls is None else replace(declared.calls, threads=1)
    assert measured.calls == expected
    assert measured.output_schema("lookup") == declared.output_schema("lookup")
    assert len([operator for operator in alone.operators if operator.kind is Kind.SINK]) == (
        2 if options.get("dead_letters") else 1
    )
