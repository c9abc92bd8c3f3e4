"""Page view: how often each website was called, from access logs. A stateless region and one keyed by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import count_differences, last_counts
from penstock.apps.input_output import default_sink
from penstock.apps.mst import weblog
from penstock.dataflow.sinks import Sink


def count(accesses: DataFrame) -> DataFrame:
    return accesses.groupBy("site").count()


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> penstock.Dataflow:
    """The dataflow on generated logs, or on the log files of the glob `input`."""
    flow = penstock.Dataflow("page_view")
    (
        weblog.stream(flow, input, rows, rows_per_s)
        .keyed("views", count, keys=["site"], columns=["site", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def oracle(rows: int) -> Counter[str]:
    """Site -> how many of the first `rows` lines are calls of it."""
    return Counter(access[0] for access in weblog.accesses(rows))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return last_counts(output, "site")


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """How the output differs from the oracle's."""
    return count_differences(oracle(rows), output, "site")
