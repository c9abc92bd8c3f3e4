"""The gain of a split (section 4.2 of the paper), with the values that are printed or follow from the formula by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.policies.organic.splitting import (
    OperatorStep,
    balanced_position,
    balanced_positions,
    overhead,
    split_gain,
)


def steps(*costs: float) -> list[OperatorStep]:
    return [OperatorStep(operator=f"o{number}", cost=cost) for number, cost in enumerate(costs, start=1)]


def test_the_example_of_the_paper_splits_at_the_third_operator() -> None:
    example = steps(0.2, 0.1, 0.4)
    assert overhead(example) == pytest.approx(0.3)
    assert balanced_position(example) == 2  # the third operator is the first of the second pipeline
    assert split_gain(example, [1]) == pytest.approx(1 / 0.8 - 1)  # 1 / (0.3 + max(0.2, 0.5))
    assert split_gain(example, [2]) == pytest.approx(1 / 0.7 - 1)  # 1 / (0.3 + max(0.3, 0.4))


@pytest.mark.parametrize(("costs", "gain"), [((0.75, 0.10), 0.11), ((0.45, 0.40), 0.67)])
def test_gains_of_the_experiments_with_the_split_threshold(costs: tuple[float, float], gain: float) -> None:
    assert round(split_gain(steps(*costs), [1]), 2) == gain


def test_the_first_of_several_balanced_positions_is_taken() -> None:
    """Figure 10: four equal operators with cheap ones between them are split behind the second."""
    assert balanced_position(steps(0.25, 0.0, 0.25, 0.0, 0.25, 0.0, 0.25)) == 3


def test_a_pipeline_of_one_operator_or_without_a_possible_cut_cannot_be_split() -> None:
    assert balanced_position(steps(1.0)) is None
    assert (
        balanced_position([OperatorStep(operator="a", cost=0.5, cuttable=False), OperatorStep(operator="b", cost=0.5)])
        is None
    )
    assert balanced_positions(steps(1.0), 3) == []


def test_several_parts() -> None:
    assert balanced_positions(steps(0.25, 0.25, 0.25, 0.25), 4) == [1, 2, 3]
    assert balanced_positions(steps(0.25, 0.25, 0.25, 0.25), 9) == [1, 2, 3]  # no more parts than operators
    assert split_gain(steps(0.25, 0.25, 0.25, 0.25), [1, 2, 3]) == pytest.approx(3.0)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8))
def test_the_balanced_position_has_the_highest_gain_of_all(weights: list[float]) -> None:
    total = sum(weights) / 0.9 or 1.0
    parts = steps(*(weight / total for weight in weights))
    position = balanced_position(parts)
    assert position is not None
    best = max(split_gain(parts, [k]) for k in range(1, len(parts)))
    assert split_gain(parts, [position]) == pytest.approx(best, rel=1e-6, abs=1e-6)
