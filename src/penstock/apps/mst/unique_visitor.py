"""Unique visitor: count the distinct visitors of each website in access logs.

Two keyed operators: the first emits each visitor of a site once (keyed by both), the second counts by site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import count_differences, last_counts
from penstock.apps.input_output import default_sink
from penstock.apps.mst import weblog
from penstock.apps.mst.page_view import count
from penstock.dataflow.sinks import Sink


def first_visit(accesses: DataFrame) -> DataFrame:
    return accesses.select("site", "visitor").dropDuplicates()


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> penstock.Dataflow:
    """Return the dataflow on generated logs, or on the log files that match the glob `input`."""
    flow = penstock.Dataflow("unique_visitor")
    (
        weblog.stream(flow, input, rows, rows_per_s)
        .keyed("first_visit", first_visit, keys=["site", "visitor"], output_mode="append", columns=["site", "visitor"])
        .keyed("visitors", count, keys=["site"], columns=["site", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def oracle(rows: int) -> Counter[str]:
    """Return the number of distinct visitors of each site in the first `rows` lines."""
    return Counter(site for site, _ in {access[:2] for access in weblog.accesses(rows)})


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return last_counts(output, "site")


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return count_differences(oracle(rows), output, "site")
