"""Grep: lines that match a regular expression, and how many there were.

A stateless region and one global counter, whose single replica bounds what more executors can bring.
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
    """The dataflow on the lines of word count, or on the text files of the glob `input`; the pattern is Java's."""
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
    """How many of the first `rows` lines match."""
    return sum(1 for n in range(rows) if re.search(pattern, generator(n)))


def actual(output: Iterable[Mapping[str, Any]]) -> int:
    """The last count, which is the largest; Spark sends it again after a batch without a match."""
    return max((row["count"] for row in output), default=0)


def check(output: Iterable[Mapping[str, Any]], rows: int, pattern: str = PATTERN) -> list[str]:
    expected, seen = oracle(rows, pattern), actual(output)
    return [] if seen == expected else [f"matching lines: expected {expected}, got {seen}"]
