from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.errors import DataflowError
from penstock.models.flow import Flow, FlowStream, check, flow_from_json, gains


def flow(*streams: tuple[str | None, str, float]) -> Flow:
    names = dict.fromkeys(name for s, t, _ in streams for name in (s, t) if name is not None)
    return Flow(
        operators=tuple(names), streams=tuple(FlowStream(source=s, target=t, selectivity=x) for s, t, x in streams)
    )


def test_join_adds_and_selectivity_multiplies() -> None:
    split = flow((None, "a", 1.0), ("a", "b", 0.5), ("a", "c", 3.0), ("b", "d", 2.0), ("c", "d", 1.0))
    assert gains(split) == {"a": 1.0, "b": 0.5, "c": 3.0, "d": 4.0}


def test_two_streams_between_two_operators_add_up() -> None:
    assert gains(flow((None, "a", 1.0), ("a", "b", 0.25), ("a", "b", 0.5)))["b"] == 0.75


def test_breadth_first_from_the_sources_in_the_order_of_the_streams() -> None:
    tree = flow((None, "r", 1), ("r", "x", 1), ("r", "y", 1), ("x", "x1", 1), ("y", "y1", 1), ("x1", "end", 1))
    assert list(gains(tree)) == ["r", "x", "y", "x1", "y1", "end"]


@settings(deadline=None)
@given(st.data(), st.integers(1, 6))
def test_gains_solve_the_traffic_equations(data: st.DataObject, size: int) -> None:
    names = [f"o{number}" for number in range(size)]
    number = st.floats(0.0, 3.0)
    external = np.array([data.draw(number) for _ in names])
    matrix = np.array([[data.draw(number) if i < j else 0.0 for j in range(size)] for i in range(size)])
    streams = [(None, name, external[j]) for j, name in enumerate(names)]
    streams += [(names[i], names[j], matrix[i, j]) for i in range(size) for j in range(i + 1, size)]
    visits = gains(flow(*streams))
    expected = np.linalg.solve(np.eye(size) - matrix.T, external)
    assert [visits[name] for name in names] == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-12)


def test_json_round_trip_and_the_documented_keys() -> None:
    streams = '[{"from": null, "to": "p", "selectivity": 1.0}, {"from": "p", "to": "q"}]'
    text = f'{{"operators": ["p", "q"], "streams": {streams}}}'
    read = flow_from_json(text)
    assert read.streams[1] == FlowStream(source="p", target="q", selectivity=1.0)
    assert flow_from_json(msgspec.json.encode(read)) == read


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Flow(operators=(), streams=()), "no operators"),
        (Flow(operators=("a", "a"), streams=()), "'a' is listed twice"),
        (
            Flow(operators=("a",), streams=(FlowStream(source=None, target="b"),)),
            "refers to 'b', which is not an operator",
        ),
        (
            Flow(operators=("a",), streams=(FlowStream(source="z", target="a"),)),
            "refers to 'z', which is not an operator",
        ),
        (flow((None, "a", -1.0)), "selectivity -1"),
        (flow((None, "a", math.nan)), "selectivity nan"),
        (flow((None, "a", 1.0), ("a", "b", 1.0), ("b", "a", 0.1)), "loop, a -> b -> a"),
        (Flow(operators=("a", "b"), streams=(FlowStream(source=None, target="a"),)), "No external row reaches 'b'"),
        (flow(("a", "b", 1.0)), "No external row reaches 'a', 'b'"),
    ],
)
def test_flows_without_rates_are_refused(broken: Flow, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        check(broken)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"operators": ["a"], "streams": [], "x": 1}',
        '{"operators": "a", "streams": []}',
        '{"operators": ["a"], "operators": ["a"], "streams": [{"from": null, "to": "a"}]}',
        b"\xff",
    ],
)
def test_invalid_flows_are_refused(text: str | bytes) -> None:
    with pytest.raises(DataflowError, match="The dataflow is invalid"):
        flow_from_json(text)
