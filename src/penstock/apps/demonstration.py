"""Orders whose operator waits for an external service: the dataflow of `penstock demo`, and its batch computation.

A replica spends its time waiting, so more slots than cores increase the throughput: one replica serves about 1 / WAIT_S
rows per second, on any machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

import penstock

SOURCE, OPERATOR, SINK = "orders", "lookup", "out"
WAIT_S = 0.02  # response time of the service
_COUNTRIES = ("Chile", "Ghana", "Japan", "Latvia", "Peru")


def customer_of(number: int) -> int:
    """Return the customer of an order.

    >>> [customer_of(number) for number in range(3)]
    [0, 7, 14]
    """
    return number * 7 % 1_000


def country_of(customer: int) -> str:
    """Return the answer of the service, without its response time."""
    return _COUNTRIES[customer % len(_COUNTRIES)]


def lookup(order: Mapping[str, int]) -> dict[str, object]:
    """Ask the service for the country of an order."""
    time.sleep(WAIT_S)
    return {"order": order["order"], "country": country_of(customer_of(order["order"]))}


def flow(rows_per_s: float, *, rows: int | None = None) -> penstock.Dataflow:
    """Return the dataflow; without `rows` its source never ends."""
    dataflow = penstock.Dataflow("orders")
    orders = dataflow.source(SOURCE, penstock.generate(int, schema="order bigint", rows=rows, rows_per_s=rows_per_s))
    orders.rows(OPERATOR, lookup, schema="order bigint, country string").sink(SINK, penstock.memory())
    return dataflow


def differences(output: Iterable[Mapping[str, object]], least_rows: int) -> list[str]:
    """Compare the output with a batch computation over the first orders, which must be at least `least_rows`.

    Returns one sentence for each kind of difference; an empty list if the output is exact.
    """
    counts = Counter((row["order"], row["country"]) for row in output)
    expected = {(number, country_of(customer_of(number))) for number in range(max(counts.total(), least_rows))}
    missing, unexpected = expected - counts.keys(), counts.keys() - expected
    repeated = [row for row, times in counts.items() if times > 1]
    kinds = (("missing", missing), ("unexpected", unexpected), ("repeated", repeated))
    return [f"{len(rows)} rows are {kind}, such as {sorted(rows, key=str)[0]}." for kind, rows in kinds if rows]
