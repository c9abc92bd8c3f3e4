"""Graph algorithms on a dataflow: order, ancestors, cycles. The order ignores edges that close a declared loop."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operators import Operator


def _forward(operators: Mapping[str, Operator]) -> TopologicalSorter[str]:
    return TopologicalSorter(
        {
            name: [
                producer for producer in operator.inputs if producer in operators and producer not in operator.feedback
            ]
            for name, operator in operators.items()
        }
    )


def topological(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return the operators in an order in which each comes after its inputs, otherwise in the order of declaration."""
    by_name = {operator.name: operator for operator in operators}
    rank = {name: position for position, name in enumerate(by_name)}
    names = list(by_name)
    forward = _forward(by_name)
    forward.prepare()
    ready: list[int] = []
    order = []
    while forward.is_active():
        for name in forward.get_ready():
            heapq.heappush(ready, rank[name])
        first = names[heapq.heappop(ready)]
        order.append(by_name[first])
        forward.done(first)
    return tuple(order)


def ancestors(operators: Mapping[str, Operator], names: Iterable[str]) -> set[str]:
    """Return the named operators and all operators upstream of them."""
    seen: set[str] = set()
    frontier = [name for name in names if name in operators]
    while frontier:
        name = frontier.pop()
        if name not in seen:
            seen.add(name)
            frontier.extend(producer for producer in operators[name].inputs if producer in operators)
    return seen


def refuse_cycles(flow: str, operators: Iterable[Operator]) -> None:
    """Raise DataflowError if there is a cycle that is not closed by a feedback stream."""
    try:
        _forward({operator.name: operator for operator in operators}).prepare()
    except CycleError as error:
        raise DataflowError(
            f"Dataflow '{flow}' has a cycle without a cut: {' -> '.join(error.args[1])}; "
            "close it with flow.feedback(...) and stream.feed(...)."
        ) from None
