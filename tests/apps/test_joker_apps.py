"""The dataflows of the Joker paper, without Spark: their regions, their operators, and their simulated costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pandas as pd
import pytest

import penstock
from penstock.apps import joker
from penstock.apps.joker import multiplication
from penstock.apps.joker.graph import FACTORS
from penstock.apps.joker.multiplication import counted, emitted_ids, expected, generated_rows, multiplied, worked
from penstock.dataflow import Kind, regions
from penstock.dataflow.operators import RowFunction
from penstock.dataflow.sources import Generate
from penstock.plan import default_plan

FLOWS: dict[str, tuple[Callable[[], penstock.Dataflow], list[tuple[str, int]]]] = {
    # Regions as (kind, operators without the sink).
    "one_operator": (joker.one_operator, [("keyed", 1)]),
    "two_operators": (joker.two_operators, [("keyed", 2)]),
    "four_operators": (joker.four_operators, [("keyed", 4)]),
    "five_operators": (joker.five_operators, [("keyed", 5)]),
    "selectivities": (joker.selectivities, [("keyed", 7)]),
    "tree": (joker.tree, [("keyed", 1)] * 3),
    "reverse_tree": (joker.reverse_tree, [("keyed", 1)] * 3),
    "chain_of_2": (joker.chain, [("keyed", 1)] * 2),
    "chain_of_4": (lambda: joker.chain(operators=4), [("keyed", 2)] * 2),
    "costly_and_cheap": (joker.costly_and_cheap, [("keyed", 1)] * 2),
    "seven_operators": (joker.seven_operators, [("keyed", 3), ("global_state", 1), ("keyed", 3)]),
}


@pytest.mark.parametrize("name", FLOWS)
def test_regions_are_those_of_the_figures(name: str) -> None:
    make, expected_regions = FLOWS[name]
    flow = make()
    assert flow.name == name
    shapes = [
        (region.kind.value, sum(flow[operator].kind is not Kind.SINK for operator in region.operators))
        for region in regions(flow)
        if region.kind is not Kind.SOURCE
    ]
    assert [region for region in shapes if region[1]] == expected_regions
    joker.behaviour(flow, rows_per_s=10.0).check(flow)


@pytest.mark.parametrize("name", ["one_operator", "two_operators", "four_operators", "five_operators", "selectivities"])
def test_a_region_begins_with_one_pipeline(name: str) -> None:
    flow = FLOWS[name][0]()
    assert not default_plan(flow, slots=2).cuts


def test_rows_depend_on_their_number_only() -> None:
    flow = joker.one_operator(rows=3)
    (source,) = [operator.source for operator in flow.operators if operator.kind is Kind.SOURCE]
    assert isinstance(source, Generate)
    assert generated_rows(3) == generated_rows(5)[:3]
    assert len({row["key"] for row in generated_rows(2000)}) > 500


def test_multiplications_have_the_closed_form() -> None:
    (row,) = worked({"id": 7, "key": 1, "other": 2, "value": 5}, 1024, 1.0)
    assert row == {"id": 7, "key": 1, "other": 2, "value": 5 * pow(3, 1024, 2**31 - 1) % (2**31 - 1)}
    assert multiplied(5, 0) == 5


def test_selectivities_are_reached_and_copies_have_ids_of_their_own() -> None:
    assert sum(len(emitted_ids(n, 0.25)) for n in range(8000)) / 8000 == pytest.approx(0.25, abs=0.02)
    copies = [id_ for n in range(100) for id_ in emitted_ids(n, 4.0)]
    assert copies == list(range(400))


def test_row_functions_give_the_rows_of_the_closed_form() -> None:
    """All operators of figure 10, applied to rows one after another."""
    flow = joker.selectivities(rows=40)
    rows = [dict(row) for row in generated_rows(40)]
    rows = [result for row in rows for result in worked(row, 1024, 1.0)]
    for operator in flow.operators:
        if isinstance(operator.fn, RowFunction):
            rows = [result for row in rows for result in operator.fn.fn(row)]
    path = [(1024, 1.0), (0, 4.0), (256, 1.0), (0, 0.25), (1024, 1.0), (0, 0.5), (2048, 1.0)]
    assert counted(rows) == counted(expected(generated_rows(40), path)) != Counter()


def test_the_keyed_operator_counts_the_rows_of_its_key() -> None:
    class State:
        exists, get = True, (5,)

        def update(self, value: tuple[int]) -> None:
            self.get = value

    class Grouped:
        def applyInPandasWithState(self, function: object, *_: str) -> object:  # noqa: N802
            return function

    class Rows:
        def groupBy(self, key: str) -> Grouped:  # noqa: N802
            assert key == "key"
            return Grouped()

    function = multiplication._keyed_function(3, 1.0, "key")(Rows())  # type: ignore[arg-type]
    state, frame = State(), pd.DataFrame(generated_rows(4))
    (result,) = list(function((1,), iter([frame]), state))  # type: ignore[operator]
    assert state.get == (9,)
    assert result["value"].tolist() == [value * 27 % (2**31 - 1) for value in frame["value"]]


def test_the_factors_of_the_experiments_are_possible() -> None:
    for factor in FACTORS:
        flow = joker.seven_operators(factor=factor)
        assert {operator.selectivity for operator in flow.operators if operator.selectivity is not None} == {
            0.9 * factor
        }
