"""Data clean: keep the requests of access logs that were answered with status 200. All operators are stateless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink
from penstock.apps.mst import weblog
from penstock.dataflow.sinks import Sink


def answered(accesses: DataFrame) -> DataFrame:
    return accesses.where("status = 200")


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> penstock.Dataflow:
    """Return the dataflow on generated logs, or on the log files that match the glob `input`."""
    flow = penstock.Dataflow("data_clean")
    (
        weblog.stream(flow, input, rows, rows_per_s)
        .stateless("answered", answered, columns=weblog.COLUMNS)
        .sink("out", default_sink(output, rows))
    )
    return flow


Call = tuple[str, str, int, str, int, int]  # site, visitor, time in ms, path, status, bytes


def oracle(rows: int) -> Counter[Call]:
    """Return the requests with status 200 in the first `rows` lines, with their number of occurrences."""
    return Counter(_call(access) for access in weblog.accesses(rows) if access[4] == 200)


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Call]:
    return Counter(_call(tuple(row[column] for column in weblog.COLUMNS)) for row in output)


def _call(access: weblog.Access) -> Call:
    site, visitor, at, path, status, size = access
    return site, visitor, epoch_ms(at), path, status, size


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
