"""Rates in an acyclic dataflow: operators, and streams with selectivities.

Source: Shukla and Simmhan, JPDC 2018, the input rate of a task. Let `gain` be the rows that reach an operator per
external row. In topological order,

    gain_j = sum over external streams into j of selectivity + sum over streams i -> j of gain_i * selectivity_ij

The input rate of j is `rate * gain_j`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.json_document import decode_json

Selectivity = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0})]


class FlowStream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream from one operator to another; a `source` of None is external."""

    source: str | None = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    selectivity: Selectivity = 1.0


class Flow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of DATAFLOW.json: operator names and the streams between them. `check` validates it."""

    operators: tuple[str, ...]
    streams: tuple[FlowStream, ...]


def flow_from_json(text: str | bytes) -> Flow:
    """Parse and check DATAFLOW.json; raise a DataflowError if it is invalid."""
    try:
        flow = decode_json(text, Flow)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataflowError(
            f'The dataflow is invalid: {error}. Example: {{"operators": ["parse", "count"], "streams": '
            '[{"from": null, "to": "parse", "selectivity": 1.0}, {"from": "parse", "to": "count", "selectivity": 3.0}]}'
        ) from None
    check(flow)
    return flow


def check(flow: Flow) -> None:
    """Raise a DataflowError for unknown or duplicate names, loops, and operators that no row reaches."""
    if not flow.operators:
        raise DataflowError("The dataflow has no operators. Give at least one in 'operators'.")
    names = set(flow.operators)
    if len(names) < len(flow.operators):
        duplicate = next(name for name in flow.operators if flow.operators.count(name) > 1)
        raise DataflowError(f"Operator '{duplicate}' is listed twice. Give each operator a unique name.")
    for stream in flow.streams:
        label = f"Stream {stream.source or 'external'} -> {stream.target}"
        for name in (stream.source, stream.target):
            if name is not None and name not in names:
                raise DataflowError(f"{label} refers to '{name}', which is not an operator. Add or correct it.")
        if not (math.isfinite(stream.selectivity) and stream.selectivity >= 0):
            raise DataflowError(f"{label} has selectivity {stream.selectivity}. It must be a finite number, 0 or more.")
    _refuse_loops(flow)
    reached = set(_breadth_first(flow))
    missed = [name for name in flow.operators if name not in reached]
    if missed:
        raise DataflowError(
            f"No external row reaches {_quoted(missed)}. Add a stream from null or from another operator."
        )


def gains(flow: Flow) -> dict[str, float]:
    """Return the rows into each operator per external row; operators are in breadth-first order from the sources.

    >>> ends = [(None, "a"), (None, "b"), ("a", "hub"), ("b", "hub")]
    >>> streams = tuple(FlowStream(source=source, target=target) for source, target in ends)
    >>> gains(Flow(operators=("a", "b", "hub"), streams=streams))
    {'a': 1.0, 'b': 1.0, 'hub': 2.0}
    """
    import networkx

    arriving: dict[str, list[float]] = {name: [] for name in flow.operators}
    leaving: dict[str, list[FlowStream]] = {name: [] for name in flow.operators}
    for stream in flow.streams:
        if stream.source is None:
            arriving[stream.target].append(stream.selectivity)
        else:
            leaving[stream.source].append(stream)
    gain: dict[str, float] = {}
    for name in networkx.topological_sort(_graph(flow)):
        gain[name] = math.fsum(arriving[name])
        for stream in leaving[name]:
            arriving[stream.target].append(gain[name] * stream.selectivity)
    return {name: gain[name] for name in _breadth_first(flow)}


def _graph(flow: Flow) -> Any:
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(flow.operators)
    graph.add_edges_from((stream.source, stream.target) for stream in flow.streams if stream.source is not None)
    return graph


def _breadth_first(flow: Flow) -> list[str]:
    """Return the operators from the sources on, in the order of the streams. networkx has no fixed order in a layer."""
    after: dict[str, list[str]] = {name: [] for name in flow.operators}
    for stream in flow.streams:
        if stream.source is not None:
            after[stream.source].append(stream.target)
    order = dict.fromkeys(stream.target for stream in flow.streams if stream.source is None)
    waiting = deque(order)
    while waiting:
        for name in after[waiting.popleft()]:
            if name not in order:
                order[name] = None
                waiting.append(name)
    return list(order)


def _refuse_loops(flow: Flow) -> None:
    import networkx

    try:
        cycle = networkx.find_cycle(_graph(flow))
    except networkx.NetworkXNoCycle:
        return
    path = " -> ".join([cycle[0][0], *(edge[1] for edge in cycle)])
    raise DataflowError(f"The dataflow has a loop, {path}. Threads can only be allocated in a dataflow without loops.")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
