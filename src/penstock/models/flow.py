"""Rates through a dataflow without loops: operators, streams with selectivities, rows from outside.

Source: Shukla and Simmhan, JPDC 2018, the input rate of a task. With `gain` the rows that reach an operator for one
row from outside,

    gain_j = sum over external streams into j of selectivity + sum over streams i -> j of gain_i * selectivity_ij

in topological order, and the input rate of j is `rate * gain_j`.
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
    """Rows from one operator (from outside where `source` is None) to another."""

    source: str | None = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    selectivity: Selectivity = 1.0


class Flow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DATAFLOW.json: names of operators, and the streams between them. Checked when it is read or by `check`."""

    operators: tuple[str, ...]
    streams: tuple[FlowStream, ...]


def flow_from_json(text: str | bytes) -> Flow:
    try:
        flow = decode_json(text, Flow)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataflowError(
            f'this is not a dataflow: {error}; a dataflow looks like {{"operators": ["parse", "count"], "streams": '
            '[{"from": null, "to": "parse", "selectivity": 1.0}, {"from": "parse", "to": "count", "selectivity": 3.0}]}'
        ) from None
    check(flow)
    return flow


def flow_to_json(flow: Flow) -> str:
    return msgspec.json.format(msgspec.json.encode(flow)).decode()


def check(flow: Flow) -> None:
    """Refuses what has no rates: unknown names, loops, operators that no row reaches."""
    if not flow.operators:
        raise DataflowError("the dataflow has no operators; name at least one under 'operators'")
    names = set(flow.operators)
    if len(names) < len(flow.operators):
        twice = next(name for name in flow.operators if flow.operators.count(name) > 1)
        raise DataflowError(f"operator '{twice}' is named twice; give each operator a name of its own")
    for stream in flow.streams:
        label = f"the stream {stream.source or 'from outside'} -> {stream.target}"
        for name in (stream.source, stream.target):
            if name is not None and name not in names:
                raise DataflowError(f"{label} names '{name}', which is not among the operators; add it or correct it")
        if not (math.isfinite(stream.selectivity) and stream.selectivity >= 0):
            raise DataflowError(f"{label} has selectivity {stream.selectivity}; it must be a finite number, 0 or more")
    _refuse_loops(flow)
    reached = set(_breadth_first(flow))
    missed = [name for name in flow.operators if name not in reached]
    if missed:
        raise DataflowError(
            f"no stream leads rows from outside to {_quoted(missed)}; add a stream from null or from another operator"
        )


def gains(flow: Flow) -> dict[str, float]:
    """Rows into each operator for one row from outside, operators in breadth-first order from the sources.

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
    """From the sources on, in the order of the streams: networkx walks layers as sets, in an order that changes."""
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
    raise DataflowError(f"the dataflow has a loop, {path}; threads are allocated along a dataflow without loops")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
