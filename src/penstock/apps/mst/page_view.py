"""Page view: count the requests of each website in access logs. A stateless parser and a count keyed by site."""

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
    """Return the dataflow on generated logs, or on the log files that match the glob `input`."""
    flow = penstock.Dataflow("page_view")
    (
        weblog.stream(flow, input, rows, rows_per_s)
        .keyed("views", count, keys=["site"], columns=["site", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def oracle(rows: int) -> Counter[str]:
    """Return the number of requests of each site in the first `rows` lines."""
    return Counter(access[0] for access in weblog.accesses(rows))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return last_counts(output, "site")


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return count_differences(oracle(rows), output, "site")
