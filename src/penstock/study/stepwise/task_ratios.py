"""The ratio of tasks between operators (Liu et al. 2017, Algorithm 1 and Equation 1).

Two corrections of the printed algorithm: line 16 divides by the smallest task load (by the largest one, the result
would always be 1), and Equation 1 gives every operator at least one task.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError

_ROUNDING = 1e-9  # 0.3 / 0.1 is 2.9999999999999996 in floating point


class SliceError(PenstockError):
    """The unit of the task load is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLoad:
    """The input of Algorithm 1 for one operator."""

    min_latency_s: float  # minimal processing latency of a row (MinLp)
    input_size: float  # sum of the relative sizes of its input streams (RSS)
    non_parallel: bool = False  # it can have one task only

    @property
    def task_load(self) -> float:
        return self.min_latency_s * self.input_size


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRatios:
    """The result of Algorithm 1. Each operator is in exactly one of the two."""

    ratios: dict[str, float]  # parallel operators: share of the largest task load
    tasks: dict[str, int]  # non-parallel and non-scalable operators: the number of tasks, which stays
    total_flow: float  # rows/s of all streams together that the non-parallel operators allow; infinite without them


def task_ratios(loads: Mapping[str, OperatorLoad], non_scalable: Collection[str]) -> TaskRatios:
    """Return the ratio of tasks of each parallel operator, and the number of tasks of all others (Algorithm 1).

    Args:
        loads: All operators except the sources.
        non_scalable: Operators that logic-dependent operators dominate.

    >>> loads = {
    ...     "parse": OperatorLoad(min_latency_s=0.004, input_size=0.5),
    ...     "rank": OperatorLoad(min_latency_s=0.002, input_size=0.25, non_parallel=True),
    ...     "write": OperatorLoad(min_latency_s=0.006, input_size=0.25),
    ... }
    >>> result = task_ratios(loads, non_scalable=["write"])
    >>> result.ratios, result.tasks, result.total_flow
    ({'parse': 1.0}, {'rank': 1, 'write': 3}, 2000.0)
    """
    total_flow = min(
        (1.0 / load.task_load for load in loads.values() if load.non_parallel and load.task_load > 0), default=math.inf
    )
    parallel = {name: load.task_load for name, load in loads.items() if not load.non_parallel}
    largest = max(parallel.values(), default=0.0)
    smallest = min((load for load in parallel.values() if load > 0), default=1.0)  # operators without a cost have none
    tasks = {name: 1 for name, load in loads.items() if load.non_parallel}
    ratios = {}
    for name, load in parallel.items():
        if name not in non_scalable:
            ratios[name] = load / largest if largest > 0 else 1.0
        elif math.isinf(total_flow):
            tasks[name] = _at_least_1(math.ceil(load / smallest - _ROUNDING))
        else:
            tasks[name] = _at_least_1(math.ceil(load * total_flow - _ROUNDING))
    return TaskRatios(ratios=ratios, tasks=tasks, total_flow=total_flow)


def whole_ratios(ratios: Mapping[str, float], slice_: float) -> dict[str, int]:
    """Return the ratios as whole numbers of tasks: max(1, floor(R / slice)), reduced by their common divisor.

    >>> whole_ratios({"parse": 0.7, "split": 0.8, "count": 1.0}, slice_=0.3)
    {'parse': 2, 'split': 2, 'count': 3}
    >>> whole_ratios({"a": 1.0, "b": 1.0}, slice_=0.3)
    {'a': 1, 'b': 1}
    """
    if not 0 < slice_ <= 1:
        raise SliceError(f"The slice is {slice_}; it must be above 0 and at most 1.")
    whole = {name: _at_least_1(math.floor(ratio / slice_ + _ROUNDING)) for name, ratio in ratios.items()}
    divisor = math.gcd(*whole.values())
    return {name: count // divisor for name, count in whole.items()}


def _at_least_1(count: int) -> int:
    return max(1, count)
