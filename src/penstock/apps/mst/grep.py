"""Grep: count the lines that match a regular expression.

A stateless filter and one global counter, whose single replica limits the benefit of more executors.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.input_output import default_sink, generated_or_files
from penstock.apps.wordcount import generator
from penstock.dataflow.sinks import Sink

PATTERN = r"\bd[aeiou]\b"  # three lines in ten of the generated text


def match(lines: DataFrame, pattern: str = PATTERN) -> DataFrame:
    return lines.where(F.col("value").rlike(pattern))


def count(lines: DataFrame) -> DataFrame:
    return lines.groupBy().count()


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    pattern: str = PATTERN,
) -> penstock.Dataflow:
    """Return the dataflow on the lines of word count, or on text files that match the glob `input`.

    `pattern` is a regular expression of Java.
    """
    flow = penstock.Dataflow("grep")
    source = generated_or_files(generator, "value string", input=input, rows=rows, rows_per_s=rows_per_s)
    (
        flow.source("lines", source)
        .stateless("match", functools.partial(match, pattern=pattern), columns=["value"])
        .global_state("count", count, columns=["count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def oracle(rows: int, pattern: str = PATTERN) -> int:
    """Return how many of the first `rows` lines match."""
    return sum(1 for n in range(rows) if re.search(pattern, generator(n)))


def actual(output: Iterable[Mapping[str, Any]]) -> int:
    """Return the last count, which is the largest. Spark repeats it after a batch without a match."""
    return max((row["count"] for row in output), default=0)


def check(output: Iterable[Mapping[str, Any]], rows: int, pattern: str = PATTERN) -> list[str]:
    """Return the differences between the output and the oracle."""
    expected, counted = oracle(rows, pattern), actual(output)
    return [] if counted == expected else [f"matching lines: expected {expected}, got {counted}"]
