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
_WAY_BACK = 2.5

Place = tuple[float, float]  # along the layers, and the lane; in cells
Bend = tuple[Place, Place, Place]  # of a curve: where it heads, where it comes from, where it ends


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
        begin = (layer[producer] + 1 - _GAP, lane[producer])
        end = (layer[consumer] + _GAP, lane[consumer])
        if (producer, consumer) in back:
            kind, width, bends = "feedback", _WAY_BACK, _way_back(begin, end, lanes + 0.2)
        else:
            points = [begin]
            for dummy in routes[producer, consumer]:
                points += [(layer[dummy] + _GAP, lane[dummy]), (layer[dummy] + 1 - _GAP, lane[dummy])]
            kind = "cut" if by_name[producer].cut else "inside"
            width, bends = _width(by_name[producer].rows_out_per_s, most), _way_on([*points, end])
        drawn.append(
            Edge(
                producer=producer,
                consumer=consumer,
                kind=kind,
                width=width,
                across=_path(begin, bends),
                down=_path(begin, bends, swapped=True),
            )
        )
    return Graph(
        nodes=tuple(Node(operator=one, layer=layer[one.operator], lane=lane[one.operator]) for one in operators),
        edges=tuple(drawn),
        layers=max(layer.values(), default=0) + 1,
        lanes=lanes + (0.4 if back else 0.0),
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


def _way_on(points: list[Place]) -> list[Bend]:
    """Smooth along the layers, from place to place."""
    return [
        (((along + next_along) / 2, lane), ((along + next_along) / 2, next_lane), (next_along, next_lane))
        for (along, lane), (next_along, next_lane) in pairwise(points)
    ]


def _way_back(begin: Place, end: Place, beyond: float) -> list[Bend]:
    """Out behind the producer, back beyond all lanes, in before the consumer."""
    (out, lane), (into, end_lane) = begin, end
    return [
        ((out + _GAP, lane), (out + _GAP, beyond), (out, beyond)),
        ((out, beyond), (into, beyond), (into, beyond)),
        ((into - _GAP, beyond), (into - _GAP, end_lane), (into, end_lane)),
    ]


def _path(begin: Place, bends: list[Bend], *, swapped: bool = False) -> str:
    def at(place: Place) -> str:
        along, lane = place
        return f"{lane:.2f} {along:.2f}" if swapped else f"{along:.2f} {lane:.2f}"

    return f"M{at(begin)}" + "".join(f"C{' '.join(map(at, bend))}" for bend in bends)


def _width(rate: float | None, most: float) -> float:
    """By the logarithm of the rate: of rates between 1 and 1,000,000 all are to be seen."""
    if not rate or most <= 0:
        return 1.5
    return round(1.5 + (_WIDEST - 1.5) * math.log1p(rate) / math.log1p(most), 1)
