"""Layout of the dataflow graph: layers from the sources to the sinks, lanes within a layer, and edges.

Positions are in cells. The page places layers side by side on a wide screen and one below the other on a narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx

from penstock.report.operators import OperatorSummary

_GAP = 0.12  # share of a cell before and after a box
_MIN_WIDTH = 1.5  # pixels
_MAX_WIDTH = 6.0
_FEEDBACK_WIDTH = 2.5

Point = tuple[float, float]  # (layer, lane) in cells
Bend = tuple[Point, Point, Point]  # a cubic Bézier segment: two control points and the end


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    operator: OperatorSummary
    layer: int
    lane: float  # middle of the box, in cells

    @property
    def has_input(self) -> bool:
        return bool(self.operator.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEdge:
    producer: str
    consumer: str
    kind: str  # inside (a query), cut or feedback
    width: float  # pixels
    across: str  # path with layers side by side
    down: str  # path with layers one below the other


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLayout:
    nodes: tuple[GraphNode, ...]
    edges: tuple[DrawnEdge, ...]
    layers: int
    lanes: float  # includes the space for feedback edges
    connected: bool  # False if the record does not contain the edges


def layout(operators: Sequence[OperatorSummary]) -> GraphLayout:
    """Place operators and edges."""
    by_name = {operator.operator: operator for operator in operators}
    edges = [(name, operator.operator) for operator in operators for name in operator.inputs if name in by_name]
    back = {(name, operator.operator) for operator in operators for name in operator.feedback}
    connected = bool(edges) or len(operators) < 2
    layer = _layers(by_name, [edge for edge in edges if edge not in back], connected=connected)
    lane, lanes, routes = _lanes(layer, [edge for edge in edges if edge not in back])
    highest_rate = max((by_name[name].rows_out_per_s or 0.0 for name, _ in edges), default=0.0)
    drawn = []
    for producer, consumer in edges:
        begin = (layer[producer] + 1 - _GAP, lane[producer])
        end = (layer[consumer] + _GAP, lane[consumer])
        if (producer, consumer) in back:
            kind, width, bends = "feedback", _FEEDBACK_WIDTH, _feedback_bends(begin, end, lanes + 0.2)
        else:
            points = [begin]
            for dummy in routes[producer, consumer]:
                points += [(layer[dummy] + _GAP, lane[dummy]), (layer[dummy] + 1 - _GAP, lane[dummy])]
            kind = "cut" if by_name[producer].cut else "inside"
            width, bends = _width(by_name[producer].rows_out_per_s, highest_rate), _forward_bends([*points, end])
        drawn.append(
            DrawnEdge(
                producer=producer,
                consumer=consumer,
                kind=kind,
                width=width,
                across=_path(begin, bends),
                down=_path(begin, bends, swapped=True),
            )
        )
    return GraphLayout(
        nodes=tuple(GraphNode(operator=o, layer=layer[o.operator], lane=lane[o.operator]) for o in operators),
        edges=tuple(drawn),
        layers=max(layer.values(), default=0) + 1,
        lanes=lanes + (0.4 if back else 0.0),
        connected=connected,
    )


Name = str | tuple[str, str, int]  # an operator, or an edge (producer, consumer) in a layer


def _layers(
    names: Sequence[str] | dict[str, OperatorSummary], edges: list[tuple[str, str]], *, connected: bool
) -> dict[Name, int]:
    if not connected:
        return {name: number for number, name in enumerate(names)}
    forward = networkx.DiGraph()
    forward.add_nodes_from(names)
    forward.add_edges_from(edges)
    if not networkx.is_directed_acyclic_graph(forward):  # the record lacks a feedback declaration
        return {name: number for number, name in enumerate(names)}
    return {name: number for number, layer in enumerate(networkx.topological_generations(forward)) for name in layer}


def _lanes(
    layer: dict[Name, int], edges: list[tuple[str, str]]
) -> tuple[dict[Name, float], float, dict[tuple[str, str], list[Name]]]:
    """Place each operator near its inputs.

    An edge that spans several layers takes a lane in each of them, so that it does not pass behind boxes. These places
    are added to `layer`. Return the lanes, their number, and the places of each edge.
    """
    routes: dict[tuple[str, str], list[Name]] = {}
    before: dict[Name, list[Name]] = {}
    for producer, consumer in edges:
        path: list[Name] = [(producer, consumer, at) for at in range(layer[producer] + 1, layer[consumer])]
        layer.update({place: place[2] for place in path if isinstance(place, tuple)})
        routes[producer, consumer] = path
        for place, next_place in zip([producer, *path], [*path, consumer], strict=True):
            before.setdefault(next_place, []).append(place)
    members: list[list[Name]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, number in layer.items():
        members[number].append(name)
    lanes = max(map(len, members), default=1)
    lane: dict[Name, float] = {}
    for names in members:
        names.sort(key=lambda name: _middle([lane[place] for place in before.get(name, []) if place in lane], lanes))
        for position, name in enumerate(names):
            lane[name] = (lanes - len(names)) / 2 + position + 0.5
    return lane, float(lanes), routes


def _middle(lanes: list[float], width: float) -> float:
    return sum(lanes) / len(lanes) if lanes else width / 2


def _forward_bends(points: list[Point]) -> list[Bend]:
    """Return smooth segments from place to place."""
    return [
        (((along + next_along) / 2, lane), ((along + next_along) / 2, next_lane), (next_along, next_lane))
        for (along, lane), (next_along, next_lane) in pairwise(points)
    ]


def _feedback_bends(begin: Point, end: Point, beyond: float) -> list[Bend]:
    """Return segments that leave after the producer, run back beyond all lanes, and enter before the consumer."""
    (out, lane), (into, end_lane) = begin, end
    return [
        ((out + _GAP, lane), (out + _GAP, beyond), (out, beyond)),
        ((out, beyond), (into, beyond), (into, beyond)),
        ((into - _GAP, beyond), (into - _GAP, end_lane), (into, end_lane)),
    ]


def _path(begin: Point, bends: list[Bend], *, swapped: bool = False) -> str:
    def at(place: Point) -> str:
        along, lane = place
        return f"{lane:.2f} {along:.2f}" if swapped else f"{along:.2f} {lane:.2f}"

    return f"M{at(begin)}" + "".join(f"C{' '.join(map(at, bend))}" for bend in bends)


def _width(rate: float | None, highest_rate: float) -> float:
    """Return a width by the logarithm of the rate, so that rates from 1 to 1,000,000 rows/s are distinguishable."""
    if not rate or highest_rate <= 0:
        return _MIN_WIDTH
    return round(_MIN_WIDTH + (_MAX_WIDTH - _MIN_WIDTH) * math.log1p(rate) / math.log1p(highest_rate), 1)
