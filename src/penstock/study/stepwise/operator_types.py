"""Determine the type of an operator from its input and output (Liu et al. 2017, Table 1).

The output of a proportional operator is a constant times its input. The factor of a workload-dependent operator differs
between parts of the data. The output of a logic-dependent operator does not grow with its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

_SIGNIFICANCE = 0.001  # a dataflow has many operators, and none of their types should be wrong by chance
_ELASTICITY = 0.5  # growth of the output: the midpoint between a logic-dependent and a proportional operator


class OperatorType(StrEnum):
    PROPORTIONAL = "proportional"  # such as a function or a join
    WORKLOAD_DEPENDENT = "workload-dependent"  # such as splitting or filtering
    LOGIC_DEPENDENT = "logic-dependent"  # such as a top-N list or a periodic aggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOutputRates:
    """Input and output of an operator over one slice of the data at one rate."""

    data_slice: int  # the same number for the same data at different rates
    input_rows_per_s: float
    output_rows_per_s: float

    @property
    def selectivity(self) -> float:
        return self.output_rows_per_s / self.input_rows_per_s


def operator_type(
    slow: Sequence[InputOutputRates],
    fast: Sequence[InputOutputRates],
    *,
    declared: OperatorType | None = None,
    significance: float = _SIGNIFICANCE,
) -> OperatorType:
    """Return the type of an operator from measurements at two rates, or the declared type.

    The operator is logic-dependent if its output grows significantly less than its input, and by less than half of it
    (regression over all measurements). It is workload-dependent if the selectivity differs significantly between slices
    of the data (analysis of variance). Otherwise it is proportional.

    Args:
        slow: Measurements at the lower rate.
        fast: Measurements of the same slices at the higher rate.
        declared: Type that the user knows. It overrides the measurements.
        significance: Probability of finding a difference that does not exist.
    """
    if declared is not None:
        return declared
    slow, fast = _with_input(slow), _with_input(fast)
    if not slow or not fast:
        return OperatorType.PROPORTIONAL
    if _is_logic_dependent([*slow, *fast], significance):
        return OperatorType.LOGIC_DEPENDENT
    slices: dict[int, list[float]] = {}
    for flow in (*slow, *fast):
        slices.setdefault(flow.data_slice, []).append(flow.selectivity)
    repeated = [group for group in slices.values() if len(group) > 1]
    if len(repeated) > 1 and _differ(repeated, significance):
        return OperatorType.WORKLOAD_DEPENDENT
    return OperatorType.PROPORTIONAL


def _with_input(flows: Iterable[InputOutputRates]) -> list[InputOutputRates]:
    return [flow for flow in flows if flow.input_rows_per_s > 0]


def _is_logic_dependent(flows: Sequence[InputOutputRates], significance: float) -> bool:
    """Return whether the output grows by less than half of the growth of the input, and significantly less than it.

    The regression line of the output over the input, both relative to their means, has the slope 1 if the output is
    proportional to the input, and 0 if it does not depend on it.
    """
    rows_in, rows_out = (
        np.array([getattr(flow, field) for flow in flows]) for field in ("input_rows_per_s", "output_rows_per_s")
    )
    if np.ptp(rows_in) <= 1e-9 * rows_in.max() or not rows_out.any():
        return False
    line = stats.linregress(rows_in / rows_in.mean(), rows_out / rows_out.mean())
    if line.slope >= _ELASTICITY:
        return False
    return bool(not line.stderr > 0.0 or stats.t.cdf((line.slope - 1.0) / line.stderr, len(flows) - 2) < significance)


def _differ(groups: Sequence[Sequence[float]], significance: float) -> bool:
    """Return whether the means of the groups differ significantly. Constant groups differ if their values do."""
    scale = max(abs(value) for group in groups for value in group) or 1.0
    if all(np.ptp(group) <= 1e-9 * scale for group in groups):
        return bool(np.ptp([group[0] for group in groups]) > 1e-9 * scale)
    if any(len(group) < 2 for group in groups):
        return False
    test = stats.ttest_ind(*groups, equal_var=False) if len(groups) == 2 else stats.f_oneway(*groups)
    return bool(test.pvalue < significance)
