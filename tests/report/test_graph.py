from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.report.operators import OperatorSummary
from penstock.report.page.graph import layout


def summary(name: str, inputs: tuple[str, ...] = (), feedback: tuple[str, ...] = ()) -> OperatorSummary:
    unknown = dict.fromkeys(OperatorSummary.__struct_fields__)
    known = {"operator": name, "inputs": inputs, "feedback": feedback, "cut": False}
    return OperatorSummary(**unknown | known)  # type: ignore[arg-type]


@st.composite
def dataflows(draw: st.DrawFn) -> list[OperatorSummary]:
    """Draw operators that read only earlier ones, so that there is no cycle."""
    summaries: list[OperatorSummary] = []
    for number in range(draw(st.integers(1, 9))):
        before = [summary.operator for summary in summaries]
        inputs = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        summaries.append(summary(f"o{number}", tuple(inputs)))
    return summaries


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", path)]


@settings(deadline=None)
@given(dataflows())
def test_boxes_lie_apart_and_edges_go_forward(operators: list[OperatorSummary]) -> None:
    graph = layout(operators)
    place = {node.operator.operator: (node.layer, node.lane) for node in graph.nodes}
    assert len(place) == len(operators)
    for cell in place.values():
        assert 0 <= cell[0] < graph.layers and 0.5 <= cell[1] <= graph.lanes - 0.5
        # A box is less than one cell wide and high.
        assert all(cell == other or cell[0] != other[0] or abs(cell[1] - other[1]) >= 1 for other in place.values())
    assert {(edge.producer, edge.consumer) for edge in graph.edges} == {
        (name, operator.operator) for operator in operators for name in operator.inputs
    }
    for edge in graph.edges:
        if graph.connected:
            assert place[edge.producer][0] < place[edge.consumer][0]


@settings(deadline=None)
@given(dataflows())
def test_no_edge_passes_behind_a_box(operators: list[OperatorSummary]) -> None:
    """Where an edge crosses the middle of a layer, its lane contains no box."""
    graph = layout(operators)
    for edge in graph.edges:
        points = numbers(edge.across)
        ends = [points[:2], *(points[at + 4 : at + 6] for at in range(2, len(points), 6))]
        for (along, lane), (next_along, next_lane) in pairwise(ends):
            if int(along) == int(next_along):  # straight through a layer
                assert lane == next_lane
                assert all(node.layer != int(along) or abs(node.lane - lane) >= 1 for node in graph.nodes)


def test_a_chain_a_join_and_a_loop() -> None:
    graph = layout(
        [
            summary("a"),
            summary("b", ("a", "d"), feedback=("d",)),
            summary("c", ("a", "b")),
            summary("d", ("c",)),
        ]
    )
    assert [(node.operator.operator, node.layer) for node in graph.nodes] == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]
    assert {(edge.producer, edge.consumer): edge.kind for edge in graph.edges} == {
        ("a", "b"): "inside",
        ("d", "b"): "feedback",
        ("a", "c"): "inside",
        ("b", "c"): "inside",
        ("c", "d"): "inside",
    }
    assert graph.lanes == 2.4  # b, the edge from a to c beside it, and the loop


def test_a_graph_without_known_inputs() -> None:
    graph = layout([summary("a"), summary("b")])
    assert not graph.connected and [node.layer for node in graph.nodes] == [0, 1]
    circle = layout([summary("a", ("b",)), summary("b", ("a",))])
    assert [node.layer for node in circle.nodes] == [0, 1]
