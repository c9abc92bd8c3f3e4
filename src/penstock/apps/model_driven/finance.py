"""Finance: trades and quotes of shares give an index of bargains.

The paper assigns the tasks to vertices that only its figure shows. Its text says that the moving average price and the
bargain index are pi, and that pi has a higher rate than the dataflow. The other vertices and the edges are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import penstock
from penstock.apps.comparison import differences
from penstock.apps.model_driven.task_graph import Results, Vertex, actual_results, expected_results, task_flow
from penstock.apps.model_driven.tasks import Task
from penstock.dataflow.sinks import Sink

GRAPH = {
    "trades": Vertex(Task.PARSE),
    "quotes": Vertex(Task.PARSE),
    "average_price": Vertex(Task.PI, ("trades",)),
    "company": Vertex(Task.BLOB, ("quotes",)),
    "bargain_index": Vertex(Task.PI, ("average_price", "company")),
    "archive": Vertex(Task.WRITE, ("bargain_index",)),
    "history": Vertex(Task.TABLE, ("bargain_index",)),
}


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **options: Any
) -> penstock.Dataflow:
    """Return the dataflow with the options of `TaskOptions`."""
    return task_flow("finance", GRAPH, output, rows, rows_per_s, options)


def oracle(rows: int, **options: Any) -> Results:
    return expected_results(GRAPH, rows, options)


def actual(output: Iterable[Mapping[str, Any]]) -> Results:
    return actual_results(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **options: Any) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **options), actual(output))
