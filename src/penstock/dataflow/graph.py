"""The dataflow as a graph: order, ancestors, cycles. Edges that close a declared loop are left out of the order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operators import Operator


def _forward(operators: Iterable[Operator]) -> Any:
    import networkx

    listed = list(operators)
    names = {operator.name for operator in listed}
    forward = networkx.DiGraph()
    forward.add_nodes_from(operator.name for operator in listed)
    forward.add_edges_from(
        (one, operator.name)
        for operator in listed
        for one in operator.inputs
        if one in names and one not in operator.feedback
    )
    return forward


def topological(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Every operator after its inputs; otherwise in the order of declaration."""
    import networkx

    by_name = {operator.name: operator for operator in operators}
    rank = {name: position for position, name in enumerate(by_name)}
    order = networkx.lexicographical_topological_sort(_forward(by_name.values()), key=rank.__getitem__)
    return tuple(by_name[name] for name in order)


def ancestors(operators: Mapping[str, Operator], names: Iterable[str]) -> set[str]:
    """The named operators and all that flows into them."""
    seen: set[str] = set()
    frontier = [name for name in names if name in operators]
    while frontier:
        name = frontier.pop()
        if name not in seen:
            seen.add(name)
            frontier.extend(one for one in operators[name].inputs if one in operators)
    return seen


def refuse_cycles(flow: str, operators: Iterable[Operator]) -> None:
    import networkx

    try:
        cycle = networkx.find_cycle(_forward(operators))
    except networkx.NetworkXNoCycle:
        return
    path = " -> ".join([cycle[0][0], *(edge[1] for edge in cycle)])
    raise DataflowError(
        f"dataflow '{flow}' has a cycle without a cut: {path}; close it with flow.feedback(...) and stream.feed(...)"
    )
