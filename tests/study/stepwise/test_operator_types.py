"""Operator types from synthetic streams whose type is known, without noise and with 20 % noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from penstock.study.stepwise.operator_types import InputOutputRates, OperatorType, operator_type

SLICES = 8
REPEATS = 4
WORDS = (4.0, 12.0, 7.0, 20.0, 9.0, 3.0, 15.0, 6.0)  # words per line in each slice of the data


def flows(
    output: Callable[[float, int], float], rate: float, noise: float, rng: np.random.Generator
) -> list[InputOutputRates]:
    result = []
    for data_slice in range(SLICES):
        for _ in range(REPEATS):
            rows_out = output(rate, data_slice) * max(0.01, 1.0 + noise * rng.standard_normal())
            result.append(InputOutputRates(data_slice=data_slice, input_rows_per_s=rate, output_rows_per_s=rows_out))
    return result


OUTPUTS: dict[OperatorType, Callable[[float, int], float]] = {
    OperatorType.PROPORTIONAL: lambda rate, data_slice: 0.5 * rate,
    OperatorType.WORKLOAD_DEPENDENT: lambda rate, data_slice: WORDS[data_slice] * rate,
    OperatorType.LOGIC_DEPENDENT: lambda rate, data_slice: 10.0,
}


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_type_is_detected(kind: OperatorType, noise: float) -> None:
    detected = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        slow, fast = flows(OUTPUTS[kind], 100.0, noise, rng), flows(OUTPUTS[kind], 300.0, noise, rng)
        detected.append(operator_type(slow, fast, significance=0.01))
    # A proportional operator may seem workload-dependent at the significance level: 1 % of 100, so 5 with margin.
    assert detected.count(kind) >= 95


def test_an_operator_without_output_or_input_is_proportional() -> None:
    silent = [InputOutputRates(data_slice=i, input_rows_per_s=10.0, output_rows_per_s=0.0) for i in range(4)]
    assert operator_type(silent, silent) is OperatorType.PROPORTIONAL
    assert operator_type([], silent) is OperatorType.PROPORTIONAL


def test_a_declaration_overrides_the_measurement() -> None:
    rng = np.random.default_rng(1)
    slow, fast = (flows(OUTPUTS[OperatorType.PROPORTIONAL], rate, 0.0, rng) for rate in (100.0, 300.0))
    assert operator_type(slow, fast) is OperatorType.PROPORTIONAL
    declared = OperatorType.LOGIC_DEPENDENT
    assert operator_type(slow, fast, declared=declared) is declared


def test_an_output_that_grows_a_little_slower_than_the_input_is_not_logic_dependent() -> None:
    slow = [InputOutputRates(data_slice=i, input_rows_per_s=100.0, output_rows_per_s=50.0 + i % 2) for i in range(10)]
    fast = [InputOutputRates(data_slice=i, input_rows_per_s=300.0, output_rows_per_s=130.0 + i % 2) for i in range(10)]
    assert operator_type(slow, fast) is not OperatorType.LOGIC_DEPENDENT
