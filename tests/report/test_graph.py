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
    """Each operator reads some of those before it, so that there is no cycle."""
    found: list[OperatorSummary] = []
    for number in range(draw(st.integers(1, 9))):
        before = [one.operator for one in found]
        inputs = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        found.append(summary(f"o{number}", tuple(inputs)))
    return found


def numbers(path: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?[\d.]+", path)]


@settings(deadline=None)
@given(dataflows())
def test_boxes_lie_apart_and_edges_go_forward(operators: list[OperatorSummary]) -> None:
    graph = layout(operators)
    place = {one.operator.operator: (one.layer, one.lane) for one in graph.nodes}
    assert len(place) == len(operators)
    for one in place.values():
        assert 0 <= one[0] < graph.layers and 0.5 <= one[1] <= graph.lanes - 0.5
        # A box is less than one cell wide and high.
        assert all(one == other or one[0] != other[0] or abs(one[1] - other[1]) >= 1 for other in place.values())
    assert {(edge.producer, edge.consumer) for edge in graph.edges} == {
        (name, one.operator) for one in operators for name in one.inputs
    }
    for edge in graph.edges:
        if graph.connected:
            assert place[edge.producer][0] < place[edge.consumer][0]


@settings(deadline=None)
@given(dataflows())
def test_no_edge_passes_behind_a_box(operators: list[OperatorSummary]) -> None:
    """Where an edge crosses the middle of a layer, its lane is nobody's."""
    graph = layout(operators)
    for edge in graph.edges:
        found = numbers(edge.across)
        ends = [found[:2], *(found[at + 4 : at + 6] for at in range(2, len(found), 6))]
        for (along, lane), (next_along, next_lane) in pairwise(ends):
            if int(along) == int(next_along):  # straight through a layer
                assert lane == next_lane
                assert all(one.layer != int(along) or abs(one.lane - lane) >= 1 for one in graph.nodes)


def test_a_chain_a_join_and_a_loop() -> None:
    graph = layout(
        [
            summary("a"),
            summary("b", ("a", "d"), feedback=("d",)),
            summary("c", ("a", "b")),
            summary("d", ("c",)),
        ]
    )
    assert [(one.operator.operator, one.layer) for one in graph.nodes] == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]
    assert {(one.producer, one.consumer): one.kind for one in graph.edges} == {
        ("a", "b"): "inside",
        ("d", "b"): "feedback",
        ("a", "c"): "inside",
        ("b", "c"): "inside",
        ("c", "d"): "inside",
    }
    assert graph.lanes == 2.4  # b, the edge from a to c beside it, and the way back


def test_where_nothing_says_what_feeds_what() -> None:
    graph = layout([summary("a"), summary("b")])
    assert not graph.connected and [one.layer for one in graph.nodes] == [0, 1]
    circle = layout([summary("a", ("b",)), summary("b", ("a",))])
    assert [one.layer for one in circle.nodes] == [0, 1]
