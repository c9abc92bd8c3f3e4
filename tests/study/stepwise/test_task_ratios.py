"""Dominance, Algorithm 1 and Equation 1: graphs computed by hand, and the definitions on random graphs."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.study.stepwise.dominance import dominated_operators
from penstock.study.stepwise.features import minimal_latency_s, relative_stream_sizes
from penstock.study.stepwise.task_ratios import OperatorLoad, SliceError, task_ratios, whole_ratios


def test_word_count_has_the_ratio_of_figure_3() -> None:
    # Section 4.1: a tweet has 12 words. Parsing takes 0.75 ms, splitting 0.65 ms, counting a word 0.08 ms, so the task
    # loads per tweet are 0.75, 0.65 and 0.96 ms, or 0.78, 0.68 and 1 of the largest one; with a slice of 0.3: 2, 2, 3.
    sizes = relative_stream_sizes({("tweets", "parse"): 1, ("parse", "split"): 1, ("split", "count"): 12})
    latency_s = {"parse": 0.75e-3, "split": 0.65e-3, "count": 0.08e-3}
    loads = {
        name: OperatorLoad(min_latency_s=seconds, input_size=sizes.input_rows(name))
        for name, seconds in latency_s.items()
    }
    result = task_ratios(loads, non_scalable=())
    assert result.ratios == pytest.approx({"parse": 0.78125, "split": 0.65 / 0.96, "count": 1.0})
    assert result.tasks == {}
    assert whole_ratios(result.ratios, slice_=0.3) == {"parse": 2, "split": 2, "count": 3}


def test_a_non_parallel_operator_in_the_middle_limits_the_operators_that_do_not_scale() -> None:
    # rows -> parse -> rank (one task, logic-dependent) -> write; rows -> audit
    inputs = {"rows": [], "parse": ["rows"], "rank": ["parse"], "write": ["rank"], "audit": ["rows"]}
    dominated = dominated_operators(inputs, ["rank"])
    assert dominated == {"write"}
    loads = {
        "parse": OperatorLoad(min_latency_s=0.010, input_size=0.3),  # 3 ms
        "rank": OperatorLoad(min_latency_s=0.002, input_size=0.3, non_parallel=True),  # 0.6 ms: 1666.7 rows/s
        "write": OperatorLoad(min_latency_s=0.020, input_size=0.1),  # 2 ms x 1666.7 rows/s = 3.33 tasks
        "audit": OperatorLoad(min_latency_s=0.004, input_size=0.3),  # 1.2 ms: 0.4 of the largest load
    }
    result = task_ratios(loads, dominated)
    assert result.total_flow == pytest.approx(1 / 0.0006)
    assert result.tasks == {"rank": 1, "write": 4}
    assert result.ratios == pytest.approx({"parse": 1.0, "audit": 0.4})


def test_without_a_non_parallel_operator_the_smallest_load_is_the_unit() -> None:
    loads = {
        "parse": OperatorLoad(min_latency_s=0.001, input_size=0.8),  # 0.8 ms, the smallest
        "top": OperatorLoad(min_latency_s=0.002, input_size=0.8),
        "write": OperatorLoad(min_latency_s=0.010, input_size=0.2),  # 2 ms: ceil(2 / 0.8) = 3
    }
    result = task_ratios(loads, non_scalable=["write"])
    assert result.tasks == {"write": 3}
    assert math.isinf(result.total_flow)
    assert result.ratios == pytest.approx({"parse": 0.4, "top": 0.8})  # the largest load is that of `write`


def test_two_logic_dependent_parents_dominate_and_one_does_not() -> None:
    inputs = {
        "rows": [],
        "top": ["rows"],
        "mean": ["rows"],
        "filter": ["rows"],
        "both": ["top", "mean"],
        "mixed": ["top", "filter"],
        "behind both": ["both"],
        "behind mixed": ["mixed", "both"],
    }
    assert dominated_operators(inputs, ["top", "mean"]) == {"both", "behind both"}


def test_a_diamond_behind_a_logic_dependent_operator_is_dominated_as_a_whole() -> None:
    inputs = {"rows": [], "top": ["rows"], "left": ["top"], "right": ["top"], "join": ["left", "right"]}
    assert dominated_operators(inputs, ["top"]) == {"left", "right", "join"}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, list[str]], set[str]]:
    """A random graph with one or two sources, upstream first, and its logic-dependent operators."""
    sources = draw(st.integers(1, 2))
    size = draw(st.integers(1, 7))
    inputs: dict[str, list[str]] = {f"s{i}": [] for i in range(sources)}
    for i in range(size):
        inputs[f"o{i}"] = draw(st.lists(st.sampled_from(sorted(inputs)), min_size=1, max_size=3, unique=True))
    logic = draw(st.sets(st.sampled_from([f"o{i}" for i in range(size)])))
    return inputs, logic


def paths_to(inputs: dict[str, list[str]], name: str) -> list[list[str]]:
    """All paths from a source to the operator, without the operator itself."""
    if not inputs[name]:
        return [[]]
    return [[*path, before] for before in inputs[name] for path in paths_to(inputs, before)]


@given(graphs())
def test_dominance_is_its_definition(graph: tuple[dict[str, list[str]], set[str]]) -> None:
    inputs, logic = graph
    expected = {
        name for name in inputs if inputs[name] and all(logic.intersection(path) for path in paths_to(inputs, name))
    }
    assert dominated_operators(inputs, logic) == expected


@given(
    graphs(),
    st.lists(st.integers(1, 50), min_size=7, max_size=7),
    st.lists(st.integers(1, 20), min_size=21, max_size=21),
    st.sets(st.integers(0, 6)),
)
def test_algorithm_1_is_its_definition(
    graph: tuple[dict[str, list[str]], set[str]], costs: list[int], counts: list[int], single: set[int]
) -> None:
    """In whole milliseconds and rows, with exact fractions."""
    inputs, logic = graph
    operators = [name for name in inputs if inputs[name]]
    rows = {
        (before, name): counts[i % 21] for i, (name, before) in enumerate((n, b) for n in operators for b in inputs[n])
    }
    total = sum(rows.values())
    size = {name: Fraction(sum(c for (_, to), c in rows.items() if to == name), total) for name in operators}
    load = {name: Fraction(costs[int(name[1:])], 1000) * size[name] for name in operators}
    is_single = {name: int(name[1:]) in single for name in operators}
    dominated = {name for name in operators if all(logic.intersection(path) for path in paths_to(inputs, name))}
    flow = min((1 / load[name] for name in operators if is_single[name]), default=None)
    parallel = [load[name] for name in operators if not is_single[name]]

    sizes = relative_stream_sizes(rows)
    result = task_ratios(
        {
            name: OperatorLoad(
                min_latency_s=costs[int(name[1:])] / 1000,
                input_size=sizes.input_rows(name),
                non_parallel=is_single[name],
            )
            for name in operators
        },
        dominated_operators(inputs, logic),
    )
    for name in operators:
        if is_single[name]:
            assert result.tasks[name] == 1
        elif name in dominated:
            unit = load[name] / min(parallel) if flow is None else load[name] * flow
            assert result.tasks[name] == math.ceil(unit)
        else:
            assert name not in result.tasks
            assert result.ratios[name] == pytest.approx(float(load[name] / max(parallel)))


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 1), min_size=1), st.floats(0.01, 1))
def test_every_operator_has_a_task_and_the_proportions_are_rough(ratios: dict[str, float], slice_: float) -> None:
    whole = whole_ratios(ratios, slice_)
    assert min(whole.values()) >= 1
    assert math.gcd(*whole.values()) == 1
    for name, ratio in ratios.items():
        assert whole[name] <= max(1, ratio / slice_ + 1e-6)


@pytest.mark.parametrize("slice_", [0.0, -0.1, 1.5, float("nan")])
def test_a_slice_out_of_range_is_refused(slice_: float) -> None:
    with pytest.raises(SliceError, match="must be above 0 and at most 1"):
        whole_ratios({"a": 1.0}, slice_)


def test_an_operator_that_costs_nothing_has_one_task() -> None:
    loads = {
        "free": OperatorLoad(min_latency_s=0.0, input_size=0.5),
        "parse": OperatorLoad(min_latency_s=0.1, input_size=0.5),
    }
    assert whole_ratios(task_ratios(loads, ()).ratios, 0.3) == {"free": 1, "parse": 3}
    assert task_ratios(loads, ["free"]).tasks == {"free": 1}


def test_relative_sizes_in_rows_and_bytes() -> None:
    rows = {("tweets", "split"): 100.0, ("split", "count"): 300.0}
    sizes = relative_stream_sizes(rows, {"tweets": 60.0, "split": 5.0})
    assert sizes.rows == {("tweets", "split"): 0.25, ("split", "count"): 0.75}
    assert sizes.bytes == {("tweets", "split"): 0.8, ("split", "count"): 0.2}  # 6,000 and 1,500 bytes
    assert relative_stream_sizes(rows, {"tweets": 60.0}).bytes is None
    assert sizes.input_rows("count") == 0.75


def test_the_minimal_latency_ignores_single_fast_rows() -> None:
    assert minimal_latency_s([0.01] * 50 + [1e-9]) == 0.01
