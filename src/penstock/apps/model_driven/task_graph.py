"""Dataflows of the five tasks, and their oracle. Each row visits every path from the source; selectivities are 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import penstock
from penstock.apps.input_output import default_sink
from penstock.apps.model_driven.tasks import SCHEMA, Task, digested, expected, task_options, with_task
from penstock.apps.seeded_random import random_bits
from penstock.dataflow import Stream
from penstock.dataflow.sinks import Sink

SOURCE = "messages"
ROWS_PER_S = 50.0  # if neither a rate nor a number of rows is given: the lowest rate of the paper
_SEED = 0x6D657373

Results = Counter[tuple[int, int]]


class Vertex(NamedTuple):
    task: Task
    inputs: tuple[str, ...] = (SOURCE,)


Graph = Mapping[str, Vertex]  # name of the operator -> its task and inputs, inputs first


def generator(n: int) -> tuple[int, str, int]:
    """Return row n: its number, an opaque field of 10 bytes, and an empty digest.

    >>> generator(0)
    (0, '24ace981e6', 0)
    """
    return n, f"{random_bits(n, _SEED) & 0xFFFFFFFFFF:010x}", 0


def task_flow(
    name: str,
    graph: Graph,
    output: Sink | None,
    rows: int | None,
    rows_per_s: float | None,
    options: Mapping[str, Any],
) -> penstock.Dataflow:
    """Return the dataflow with these tasks. A stream without a consumer goes to the sink."""
    flow, checked = penstock.Dataflow(name), task_options(options)
    rate = ROWS_PER_S if rows is None and rows_per_s is None else rows_per_s
    source = flow.source(SOURCE, penstock.generate(generator, schema=SCHEMA, rows=rows, rows_per_s=rate))
    streams: dict[str, Stream] = {SOURCE: source}
    for vertex, (task, inputs) in graph.items():
        first, *others = (streams[source] for source in inputs)
        streams[vertex] = with_task(first, vertex, task, checked, others)
    ends = [streams[vertex] for vertex in end_vertices(graph)]
    if len(ends) == 1:
        ends[0].sink("out", default_sink(output, rows))
        return flow
    collected = flow.stateless("collect", lambda df: df, inputs=ends, columns=["id", "message", "digest"])
    collected.sink("out", default_sink(output, rows))
    return flow


def end_vertices(graph: Graph) -> list[str]:
    """Return the vertices whose output goes to the sink."""
    read = {source for _, inputs in graph.values() for source in inputs}
    return [vertex for vertex in graph if vertex not in read]


def expected_results(graph: Graph, rows: int, options: Mapping[str, Any]) -> Results:
    """Return how often each (id, digest) arrives at the sink."""
    checked = task_options(options)
    output: Results = Counter()
    for n in range(rows):
        results = {task: expected(task, n, checked) for task in {task for task, _ in graph.values()}}
        digests: dict[str, list[int]] = {SOURCE: [0]}
        for vertex, (task, inputs) in graph.items():
            digests[vertex] = [digested(digest, results[task]) for source in inputs for digest in digests[source]]
        output.update((n, digest) for vertex in end_vertices(graph) for digest in digests[vertex])
    return output


def actual_results(output: Iterable[Mapping[str, Any]]) -> Results:
    return Counter((row["id"], row["digest"]) for row in output)
