"""Star: two tasks read the source, a hub receives the rows of both, and two tasks receive the rows of the hub.

Only a figure of the paper shows the positions of the tasks. Its text gives the rate of the dataflow to blob, so it is
before the hub here. The hub and the tasks behind it have twice the rate.
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
    "blob": Vertex(Task.BLOB),
    "pi": Vertex(Task.PI),
    "parse": Vertex(Task.PARSE, ("blob", "pi")),
    "write": Vertex(Task.WRITE, ("parse",)),
    "table": Vertex(Task.TABLE, ("parse",)),
}


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **options: Any
) -> penstock.Dataflow:
    """Return the dataflow with the options of `TaskOptions`."""
    return task_flow("star", GRAPH, output, rows, rows_per_s, options)


def oracle(rows: int, **options: Any) -> Results:
    return expected_results(GRAPH, rows, options)


def actual(output: Iterable[Mapping[str, Any]]) -> Results:
    return actual_results(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **options: Any) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **options), actual(output))
