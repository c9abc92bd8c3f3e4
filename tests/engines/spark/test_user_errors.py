"""A function of the user that raises: the message names the operator, the line and the row, for every kind of function."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.dataflow import Dataflow, Stream
from penstock.engines.spark.log_files import error_log
from penstock.engines.spark.queries import retries
from tests.support.spark_runs import engine_for

pytestmark = pytest.mark.spark


def row_function(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"] // (row["n"] - 7)}


def generator(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"n": row["n"]}
    yield {"n": int("seven" if row["n"] == 7 else 7)}


def row_udf(n: int) -> int:
    return n // (n - 7)


def column_udf(n: pd.Series) -> pd.Series:
    raise KeyError("in a column")


def batches(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        assert not (frame["n"] == 7).any(), "seven"
        yield frame


def number(n: int) -> int:
    return n // (n - 7)


def with_column_udf(df: DataFrame) -> DataFrame:
    return df.select(F.pandas_udf("long")(column_udf)("n").alias("n"))


KINDS: dict[str, tuple[Callable[[Stream], Stream], Any, str, str]] = {
    "row": (
        lambda s: s.rows("fails", row_function, schema="n bigint"),
        row_function,
        "ZeroDivisionError: ",
        "; row: {'n': 7}",
    ),
    "generator": (
        lambda s: s.rows("fails", generator, schema="n bigint"),
        generator,
        "ValueError: ",
        "; row: {'n': 7}",
    ),
    "udf": (
        lambda s: s.stateless("fails", lambda df: df.select(F.udf("long")(row_udf)("n").alias("n"))),
        row_udf,
        "ZeroDivisionError: ",
        "; row: (7,)",
    ),
    "pandas_udf": (lambda s: s.stateless("fails", with_column_udf), column_udf, "KeyError: 'in a column'", ""),
    "mapInPandas": (
        lambda s: s.stateless("fails", lambda df: df.mapInPandas(batches, "n bigint")),
        batches,
        "AssertionError: seven",
        "",
    ),
}


def line_of(function: Any, statement: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if statement in line)


STATEMENTS = {"row": "//", "generator": "int(", "udf": "//", "pandas_udf": "raise", "mapInPandas": "assert"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_message_names_operator_line_and_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    declare, function, error, row = KINDS[kind]
    flow = Dataflow("failing")
    source = penstock.generate(lambda n: n, schema="n bigint", rows=10)
    declare(flow.source("numbers", source)).sink("out", penstock.noop())
    message = failure_of(flow, spark, tmp_path, monkeypatch)
    where = f"operator 'fails' failed in {__file__}, line {line_of(function, STATEMENTS[kind])}: {error}"
    assert where in message and f"{row} (" in message and "\n" not in message
    trace = error_log(tmp_path).read_text()
    assert f'File "{__file__}", line {line_of(function, STATEMENTS[kind])}, in {function.__name__}' in trace
    assert "org.apache.spark" in trace


def test_a_generated_row(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Dataflow("failing")
    flow.source("numbers", penstock.generate(number, schema="n bigint", rows=10)).sink("out", penstock.noop())
    message = failure_of(flow, spark, tmp_path, monkeypatch)
    where = f"source 'numbers' failed in {__file__}, line {line_of(number, '//')}: ZeroDivisionError: "
    assert where in message and "; row number 7 (" in message


def halves(df: DataFrame) -> DataFrame:
    return df.select((F.lit(1) / F.col("n")).alias("n"))


def test_an_expression_of_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are compiled in a thread of the run, in which no session is active."""
    flow = Dataflow("failing")
    source = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10))
    source.stateless("halves", halves).sink("out", penstock.memory())
    with ThreadPoolExecutor(1) as thread:
        message = thread.submit(failure_of, flow, spark, tmp_path, monkeypatch).result()
    line = line_of(halves, "F.lit(1)")
    assert "ArithmeticException: [DIVIDE_BY_ZERO] " in message and f" ({__file__}, line {line})" in message
    assert "pyspark.errors" not in message and "\n" not in message


def failure_of(flow: Dataflow, spark: SparkSession, at: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(retries, "RETRY_DELAYS_S", (0.0,))
    engine = engine_for(flow, spark, at)
    deadline = time.monotonic() + 300
    try:
        engine.start()
        while (failure := engine.failure()) is None:
            engine.recover()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return failure
    finally:
        engine.stop()
