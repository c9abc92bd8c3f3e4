"""Diamond: one task, three that receive each of its rows, and one that receives the rows of these three.

Only a figure of the paper shows the positions of the tasks. Its text gives the rate of the dataflow to blob and table,
so they are in the middle here, and pi has three times the rate.
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
    "parse": Vertex(Task.PARSE),
    "write": Vertex(Task.WRITE, ("parse",)),
    "blob": Vertex(Task.BLOB, ("parse",)),
    "table": Vertex(Task.TABLE, ("parse",)),
    "pi": Vertex(Task.PI, ("write", "blob", "table")),
}


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **options: Any
) -> penstock.Dataflow:
    """Return the dataflow with the options of `TaskOptions`."""
    return task_flow("diamond", GRAPH, output, rows, rows_per_s, options)


def oracle(rows: int, **options: Any) -> Results:
    return expected_results(GRAPH, rows, options)


def actual(output: Iterable[Mapping[str, Any]]) -> Results:
    return actual_results(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **options: Any) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **options), actual(output))
