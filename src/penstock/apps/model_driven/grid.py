"""Grid: readings of electricity meters and weather stations give forecasts of the consumption.

The paper assigns the tasks to vertices that only its figure shows. Its text says that there are parsing, database and
floating-point tasks, and one pi less and one blob more than in `finance`. The other vertices and the edges are ours.
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
    "meters": Vertex(Task.PARSE),
    "weather": Vertex(Task.PARSE),
    "customer": Vertex(Task.TABLE, ("meters",)),
    "station": Vertex(Task.TABLE, ("weather",)),
    "meter_archive": Vertex(Task.WRITE, ("customer",)),
    "weather_archive": Vertex(Task.WRITE, ("station",)),
    "usage_model": Vertex(Task.BLOB, ("customer",)),
    "climate": Vertex(Task.BLOB, ("station",)),
    "forecast": Vertex(Task.PI, ("usage_model", "climate")),
    "tariff": Vertex(Task.TABLE, ("forecast",)),
}


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, **options: Any
) -> penstock.Dataflow:
    """Return the dataflow with the options of `TaskOptions`."""
    return task_flow("grid", GRAPH, output, rows, rows_per_s, options)


def oracle(rows: int, **options: Any) -> Results:
    return expected_results(GRAPH, rows, options)


def actual(output: Iterable[Mapping[str, Any]]) -> Results:
    return actual_results(output)


def check(output: Iterable[Mapping[str, Any]], rows: int, **options: Any) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, **options), actual(output))
