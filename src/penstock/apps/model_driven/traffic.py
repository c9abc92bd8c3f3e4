"""Traffic: positions of vehicles give the travel times of roads.

The paper assigns the tasks to vertices that only its figure shows. Its text says that a task parses the positions, that
one archives them, and that there is one pi less and one blob more than in `finance`. The other vertices and the edges
are ours.
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
    "positions": Vertex(Task.PARSE),
    "archive": Vertex(Task.WRITE, ("positions",)),
    "road_map": Vertex(Task.BLOB, ("positions",)),
    "road": Vertex(Task.TABLE, ("road_map",)),
    "speed": Vertex(Task.PI, ("road",)),
    "signals": Vertex(Task.BLOB, ("road",)),
    "travel_time": Vertex(Task.TABLE, ("speed", "signals")),
}


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **options: Any
) -> penstock.Dataflow:
    """Return the dataflow with the options of `TaskOptions`."""
    return task_flow("traffic", GRAPH, output, rows, rows_per_s, options)


def oracle(rows: int, **options: Any) -> Results:
    return expected_results(GRAPH, rows, options)


def actual(output: Iterable[Mapping[str, Any]]) -> Results:
    return actual_results(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **options: Any) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **options), actual(output))
