"""Where the operators of a dataflow are drawn: layers from the sources on, lanes within a layer, and the edges.

Positions are in cells: the page puts layers beside each other on a wide screen and below each other on a narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx

from penstock.report.operators import OperatorSummary

_GAP = 0.12  # of a cell, on either side of a box along the layers
_WIDEST = 6.0  # pixels, of the busiest edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    operator: OperatorSummary
    layer: int
    lane: float  # the middle of its box, in cells

    @property
    def fed(self) -> bool:
        return bool(self.operator.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    producer: str
    consumer: str
    kind: str  # inside (a pipeline), cut, or feedback
    width: float  # pixels
    across: str  # its path where layers lie beside each other
    down: str  # and where they lie below each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    layers: int
    lanes: float  # with room for the way back of a loop
    connected: bool  # False where the record does not say what feeds what


def laid_out(operators: Sequence[OperatorSummary]) -> Graph:
    by_name = {one.operator: one for one in operators}
    edges = [(one, each.operator) for each in operators for one in each.inputs if one in by_name]
    back = {(one, each.operator) for each in operators for one in each.feedback}
    connected = bool(edges) or len(operators) < 2
    layer = _layers(by_name, [edge for edge in edges if edge not in back], connected=connected)
    lane, lanes, routes = _lanes(layer, [edge for edge in edges if edge not in back])
    most = max((by_name[one].rows_out_per_s or 0.0 for one, _ in edges), default=0.0)
    drawn = []
    for producer, consumer in edges:
        if (producer, consumer) in back:
            points = _way_back(layer[producer], lane[producer], layer[consumer], lane[consumer], lanes)
        else:
            points = [(layer[producer] + 1 - _GAP, lane[producer])]
            for dummy in routes.get((producer, consumer), ()):
                points += [(layer[dummy] + _GAP, lane[dummy]), (layer[dummy] + 1 - _GAP, lane[dummy])]
            points.append((layer[consumer] + _GAP, lane[consumer]))
        kind = "feedback" if (producer, consumer) in back else "cut" if by_name[producer].cut else "inside"
        drawn.append(
            Edge(
                producer=producer,
                consumer=consumer,
                kind=kind,
                width=_width(by_name[producer].rows_out_per_s, most),
                across=_curve(points),
                down=_curve(points, swapped=True),
            )
        )
    return Graph(
        nodes=tuple(Node(operator=one, layer=layer[one.operator], lane=lane[one.operator]) for one in operators),
        edges=tuple(drawn),
        layers=max(layer.values(), default=0) + 1,
        lanes=lanes + (0.5 if back else 0.0),
        connected=connected,
    )


Name = str | tuple[str, str, int]  # an operator, or where an edge passes a layer


def _layers(
    names: Sequence[str] | dict[str, OperatorSummary], edges: list[tuple[str, str]], *, connected: bool
) -> dict[Name, int]:
    if not connected:
        return {name: number for number, name in enumerate(names)}
    forward = networkx.DiGraph()
    forward.add_nodes_from(names)
    forward.add_edges_from(edges)
    if not networkx.is_directed_acyclic_graph(forward):  # a record that declares no feedback where there is some
        return {name: number for number, name in enumerate(names)}
    return {name: number for number, layer in enumerate(networkx.topological_generations(forward)) for name in layer}


def _lanes(
    layer: dict[Name, int], edges: list[tuple[str, str]]
) -> tuple[dict[Name, float], float, dict[tuple[str, str], list[Name]]]:
    """Each operator beside its inputs, as far as there is room. An edge over several layers takes a lane in each, so
    that it passes beside the boxes and not behind them; those are added to `layer`."""
    routes: dict[tuple[str, str], list[Name]] = {}
    before: dict[Name, list[Name]] = {}
    for producer, consumer in edges:
        path: list[Name] = [(producer, consumer, at) for at in range(layer[producer] + 1, layer[consumer])]
        layer.update({one: one[2] for one in path if isinstance(one, tuple)})
        routes[producer, consumer] = path
        for one, other in zip([producer, *path], [*path, consumer], strict=True):
            before.setdefault(other, []).append(one)
    members: list[list[Name]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, number in layer.items():
        members[number].append(name)
    lanes = max(map(len, members), default=1)
    lane: dict[Name, float] = {}
    for some in members:
        some.sort(key=lambda name: _middle([lane[one] for one in before.get(name, []) if one in lane], lanes))
        for position, name in enumerate(some):
            lane[name] = (lanes - len(some)) / 2 + position + 0.5
    return lane, float(lanes), routes


def _middle(lanes: list[float], width: float) -> float:
    return sum(lanes) / len(lanes) if lanes else width / 2


def _way_back(
    from_layer: int, from_lane: float, to_layer: int, to_lane: float, lanes: float
) -> list[tuple[float, float]]:
    """Out behind the producer, past all lanes, in before the consumer."""
    out, into = from_layer + 1 - _GAP / 2, to_layer + _GAP / 2
    return [
        (from_layer + 1 - _GAP, from_lane),
        (out, lanes + 0.25),
        (into, lanes + 0.25),
        (to_layer + _GAP, to_lane),
    ]


def _curve(points: list[tuple[float, float]], *, swapped: bool = False) -> str:
    """Smooth along the layers, from point to point."""

    def at(along: float, lane: float) -> str:
        return f"{lane:.2f} {along:.2f}" if swapped else f"{along:.2f} {lane:.2f}"

    path = [f"M{at(*points[0])}"]
    for (along, lane), (next_along, next_lane) in pairwise(points):
        middle = (along + next_along) / 2
        path.append(f"C{at(middle, lane)} {at(middle, next_lane)} {at(next_along, next_lane)}")
    return "".join(path)


def _width(rate: float | None, most: float) -> float:
    """By the logarithm of the rate: of rates between 1 and 1,000,000 all are to be seen."""
    if not rate or most <= 0:
        return 1.5
    return round(1.5 + (_WIDEST - 1.5) * math.log1p(rate) / math.log1p(most), 1)
